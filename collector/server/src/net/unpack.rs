//! Decompresses gzip and zstd in steps, each reserved before it is allocated.

use std::io::{self, Read};

use tokio::runtime::{Handle, RuntimeFlavor};

use super::admission::Rejection;
use super::body::BodyShare;

/// Minimum step, in bytes, unless the limit is closer. Larger steps are a quarter of the
/// decompressed size so far.
const STEP_BYTES_MIN: usize = 64 << 10;
/// Maximum window of zstd, as a power of two. Older versions of Go's library write windows of
/// 32 MiB at their best level.
const ZSTD_WINDOW_LOG_MAX: u32 = 25;
/// Memory reserved for a decoder's state, in bytes.
const DECODER_BYTES: usize = 256 << 10;

/// Compression of a body or a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentCoding {
    Gzip,
    Zstd,
}

/// Reason why a body or a message is not decompressed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    /// The compressed or decompressed size exceeds the limit, in bytes.
    #[error("it unpacks to more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("{0}")]
    Damaged(#[from] io::Error),
    /// The pool of request bytes has no room for the decompressed bytes now.
    #[error("{}", .0.message)]
    Full(Rejection),
}

impl ContentCoding {
    /// Returns the compression with this name in HTTP and gRPC.
    pub(crate) fn of_name(name: &[u8]) -> Option<Self> {
        match name {
            b"gzip" => Some(Self::Gzip),
            b"zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Decompresses up to `limit` bytes. Before each step, calls `hold` with the total of bytes to
    /// reserve. Returns an error if the result is larger than `limit`, if the data are damaged, or
    /// if `hold` fails.
    pub(crate) fn unpack(
        self,
        packed: &[u8],
        limit: usize,
        mut hold: impl FnMut(usize) -> Result<(), Rejection>,
    ) -> Result<Vec<u8>, UnpackError> {
        hold(DECODER_BYTES).map_err(UnpackError::Full)?;
        match self {
            // Some clients write several members.
            Self::Gzip => {
                let decoder = flate2::read::MultiGzDecoder::new(packed);
                read_in_steps(decoder, limit, |bytes| hold(DECODER_BYTES + bytes))
            }
            Self::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(packed)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                // The decoder also keeps its window, whose used part grows with the output.
                let window = |bytes: usize| bytes.min(1 << ZSTD_WINDOW_LOG_MAX);
                let held = |bytes| DECODER_BYTES + bytes + window(bytes);
                read_in_steps(decoder, limit, |bytes| hold(held(bytes)))
            }
        }
    }
}

fn read_in_steps(
    mut from: impl Read,
    limit: usize,
    mut hold: impl FnMut(usize) -> Result<(), Rejection>,
) -> Result<Vec<u8>, UnpackError> {
    let mut bytes = Vec::new();
    loop {
        // Reads one byte past the limit, to detect that there is more.
        let step = STEP_BYTES_MIN
            .max(bytes.len() / 4)
            .min(limit + 1 - bytes.len());
        hold(bytes.len() + step).map_err(UnpackError::Full)?;
        bytes.reserve_exact(step);
        if from.by_ref().take(step as u64).read_to_end(&mut bytes)? < step {
            return Ok(bytes);
        }
        if bytes.len() > limit {
            return Err(UnpackError::TooLarge { limit });
        }
    }
}

/// Decompresses on a blocking thread, so that no connection is delayed, or on the current thread in
/// a current-thread runtime. `reading` keeps the compressed and the decompressed bytes reserved
/// until its next resize.
pub(crate) async fn unpack_beside(
    packing: ContentCoding,
    packed: bytes::Bytes,
    limit: usize,
    reading: Option<BodyShare>,
) -> Result<Vec<u8>, UnpackError> {
    let unpacking = move || {
        packing.unpack(&packed, limit, |bytes| match &reading {
            Some(reading) => reading.at_least(packed.len() + bytes),
            None => Ok(()),
        })
    };
    // A current-thread runtime belongs to a simulation or a test. The real time that another thread
    // takes would affect the results of a simulation.
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return unpacking();
    }
    let unpacked = tokio::task::spawn_blocking(unpacking).await;
    // The task fails only if it panics or the runtime shuts down.
    unpacked.unwrap_or_else(|_| Err(io::Error::other("the collector is stopping").into()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::rejections::RejectionCause;
    use super::*;

    fn packed(packing: ContentCoding, bytes: &[u8]) -> Vec<u8> {
        match packing {
            ContentCoding::Gzip => {
                let level = flate2::Compression::best();
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            ContentCoding::Zstd => zstd::encode_all(bytes, 3).unwrap(),
        }
    }

    #[test]
    fn all_sizes_come_back_and_everything_is_held_before_it_is_there() {
        const LIMIT: usize = 1 << 20;
        let all: Vec<u8> = (0..=LIMIT).map(|at| (at / 7 % 251) as u8).collect();
        for packing in [ContentCoding::Gzip, ContentCoding::Zstd] {
            let step = STEP_BYTES_MIN;
            for size in [0, 1, step - 1, step, step + 1, 300_000, LIMIT - 1, LIMIT] {
                let mut held = 0;
                let hold = |bytes| {
                    held = held.max(bytes);
                    Ok(())
                };
                let unpacked = packing.unpack(&packed(packing, &all[..size]), LIMIT, hold);
                let unpacked = unpacked.unwrap();
                assert!(unpacked == all[..size], "{packing:?} {size}");
                assert!(
                    unpacked.capacity() <= held
                        && held <= DECODER_BYTES + 2 * size * 5 / 4 + 2 * step
                );
            }
            let too_large = packing.unpack(&packed(packing, &all), LIMIT, |_| Ok(()));
            assert!(matches!(
                too_large,
                Err(UnpackError::TooLarge { limit: LIMIT })
            ));
            let damaged = packing.unpack(b"neither", LIMIT, |_| Ok(()));
            assert!(matches!(damaged, Err(UnpackError::Damaged(_))));
        }
    }

    #[test]
    fn a_bomb_ends_where_nothing_more_can_be_held() {
        let zeros = vec![0; 60 << 20];
        for packing in [ContentCoding::Gzip, ContentCoding::Zstd] {
            let mut asked = 0;
            let unpacked = packing.unpack(&packed(packing, &zeros), 64 << 20, |bytes| {
                asked = bytes;
                let denied = || Rejection::new(RejectionCause::Bytes, "no room");
                (bytes <= 1 << 20).then_some(()).ok_or_else(denied)
            });
            assert!(matches!(unpacked, Err(UnpackError::Full(_))), "{packing:?}");
            assert!(asked < 2 << 20, "{packing:?} asked for {asked} at once");
        }
    }

    #[test]
    fn a_window_of_128_mib_is_refused() {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&[0; 1 << 20]).unwrap();
        let packed = encoder.finish().unwrap();
        let unpacked = ContentCoding::Zstd.unpack(&packed, 64 << 20, |_| Ok(()));
        assert!(matches!(unpacked, Err(UnpackError::Damaged(_))));
    }
}
