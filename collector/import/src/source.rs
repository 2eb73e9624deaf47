//! The bytes of a source, unpacked.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

/// How much of a source is looked at to recognise its format, in bytes.
const HEAD_BYTES: u64 = 64 << 10;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// An unpacked source.
pub(super) struct UnpackedSource {
    /// Its first bytes, up to 64 KiB. They are in `bytes` too.
    pub(super) head: Vec<u8>,
    /// All of it.
    pub(super) bytes: Box<dyn BufRead>,
    /// Bytes read so far of the source as it lies on the disk.
    pub(super) read_bytes: Rc<Cell<u64>>,
    /// Whether it was packed, by gzip or zstd.
    pub(super) is_packed: bool,
}

impl UnpackedSource {
    /// Opens a source; whether it is packed is seen from its first bytes, not from its name.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn open(raw: impl Read + 'static) -> io::Result<Self> {
        let read_bytes = Rc::new(Cell::new(0));
        let mut raw = BufReader::with_capacity(
            1 << 16,
            Counted {
                raw,
                read_bytes: read_bytes.clone(),
            },
        );
        let mut magic = Vec::new();
        raw.by_ref().take(4).read_to_end(&mut magic)?;
        let whole = Cursor::new(magic.clone()).chain(raw);
        let (is_packed, mut bytes): (bool, Box<dyn BufRead>) = if magic.starts_with(GZIP) {
            (
                true,
                Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(whole))),
            )
        } else if magic == ZSTD {
            (
                true,
                Box::new(BufReader::new(zstd::Decoder::with_buffer(whole)?)),
            )
        } else {
            (false, Box::new(whole))
        };
        let mut head = Vec::new();
        let bytes: Box<dyn BufRead> = match bytes.by_ref().take(HEAD_BYTES).read_to_end(&mut head) {
            Ok(_) => Box::new(Cursor::new(head.clone()).chain(bytes)),
            // What a packed source holds before its damage is used; then the error comes again.
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

struct Counted<R> {
    raw: R,
    read_bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.raw.read(buffer)?;
        self.read_bytes.set(self.read_bytes.get() + count as u64);
        Ok(count)
    }
}

/// The rest of a source that is damaged from here on.
struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}
