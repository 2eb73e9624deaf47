//! Decompressed bytes of a source.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

/// Maximum number of bytes that are inspected to recognise the format of a source.
const HEAD_BYTES: u64 = 64 << 10;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Source whose bytes are decompressed, if necessary, while they are read.
pub(super) struct UnpackedSource {
    /// The first bytes, up to 64 KiB. `bytes` contains them too.
    pub(super) head: Vec<u8>,
    /// Stream of all bytes, including the head.
    pub(super) bytes: Box<dyn BufRead>,
    /// Number of bytes read so far from the source, before decompression.
    pub(super) read_bytes: Rc<Cell<u64>>,
    /// True if the source was compressed, by gzip or zstd.
    pub(super) is_packed: bool,
}

impl UnpackedSource {
    /// Opens a source. The first bytes, not the name, show whether it is compressed.
    ///
    /// # Errors
    /// Fails if the first four bytes or the head of an uncompressed source cannot be read, or if no
    /// decoder can be created. The reader returns all other errors.
    pub(super) fn open(raw: impl Read + 'static) -> io::Result<Self> {
        let read_bytes = Rc::new(Cell::new(0));
        let counting = CountingReader {
            raw,
            read_bytes: read_bytes.clone(),
        };
        let mut raw = BufReader::with_capacity(1 << 16, counting);
        let mut magic = Vec::new();
        raw.by_ref().take(4).read_to_end(&mut magic)?;
        let whole = Cursor::new(magic.clone()).chain(raw);
        let is_packed = magic.starts_with(GZIP) || magic == ZSTD;
        let mut bytes: Box<dyn BufRead> = if magic.starts_with(GZIP) {
            Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(whole)))
        } else if is_packed {
            Box::new(BufReader::new(zstd::Decoder::with_buffer(whole)?))
        } else {
            Box::new(whole)
        };
        let mut head = Vec::new();
        let bytes: Box<dyn BufRead> = match bytes.by_ref().take(HEAD_BYTES).read_to_end(&mut head) {
            Ok(_) => Box::new(Cursor::new(head.clone()).chain(bytes)),
            // The undamaged beginning of a compressed source is used. The reader then returns the
            // error.
            Err(error) if is_packed => {
                Box::new(Cursor::new(head.clone()).chain(BufReader::new(Broken(Some(error)))))
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            head,
            bytes,
            read_bytes,
            is_packed,
        })
    }
}

struct CountingReader<R> {
    raw: R,
    read_bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.raw.read(buffer)?;
        self.read_bytes.set(self.read_bytes.get() + count as u64);
        Ok(count)
    }
}

/// Rest of a source that cannot be read from this point. It returns the error once, and then ends.
struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}
