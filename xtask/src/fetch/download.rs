//! Downloads one file over HTTP, and resumes where it stopped.
//!
//! Invariants: `FILE.part` holds the first bytes of the version whose validator (ETag, else Last-Modified) is in
//! `FILE.part.tag`. Without a validator a download starts again. The file itself appears when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use ureq::Agent;
use ureq::http::{HeaderMap, StatusCode, header};

use super::error::{Error, Result};

/// How often an interrupted transfer is resumed.
const ATTEMPTS: u32 = 4;

/// Downloads `url` to `file`. Returns the bytes that this call transferred.
pub(crate) fn download(agent: &Agent, url: &str, file: &Path) -> Result<u64> {
    let part = Part { data: beside(file, ".part"), tag: beside(file, ".part.tag") };
    let mut moved = 0;
    let (mut found, mut expected) = (0, 0);
    for _ in 0..ATTEMPTS {
        match attempt(agent, url, &part, &mut moved)? {
            End::Whole => {
                fs::rename(&part.data, file).map_err(Error::at(file))?;
                part.forget_tag()?;
                return Ok(moved);
            }
            End::Short { found: f, expected: e } => (found, expected) = (f, e),
            End::Stale => part.forget()?,
        }
    }
    Err(Error::Truncated { url: url.to_owned(), found, expected, attempts: ATTEMPTS })
}

fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// How one transfer ended.
enum End {
    Whole,
    /// It was interrupted. The received bytes are kept.
    Short {
        found: u64,
        expected: u64,
    },
    /// The bytes on disk are not the beginning of the server's file.
    Stale,
}

struct Part {
    data: PathBuf,
    tag: PathBuf,
}

impl Part {
    /// The bytes on disk, with the validator of their version.
    fn begin(&self) -> Option<(u64, String)> {
        let bytes = fs::metadata(&self.data).ok()?.len();
        let tag = fs::read_to_string(&self.tag).ok()?;
        (bytes > 0 && !tag.is_empty()).then_some((bytes, tag))
    }
    fn forget_tag(&self) -> Result<()> {
        if self.tag.exists() { fs::remove_file(&self.tag).map_err(Error::at(&self.tag)) } else { Ok(()) }
    }
    fn forget(&self) -> Result<()> {
        if self.data.exists() {
            fs::remove_file(&self.data).map_err(Error::at(&self.data))?;
        }
        self.forget_tag()
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// First byte and total of `bytes 100-199/200`; the total may be `*`.
fn range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let (range, total) = text(headers, header::CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, total.parse().ok()))
}

fn attempt(agent: &Agent, url: &str, part: &Part, moved: &mut u64) -> Result<End> {
    let begin = part.begin();
    let mut request = agent.get(url);
    if let Some((bytes, tag)) = &begin {
        // A server that has another version now sends all of it.
        request = request.header(header::RANGE, format!("bytes={bytes}-")).header(header::IF_RANGE, tag);
    }
    let unreachable = |why: String| Error::Unreachable { url: url.to_owned(), why };
    let response = request.call().map_err(|error| unreachable(error.to_string()))?;
    let (head, mut body) = response.into_parts();
    let length = text(&head.headers, header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());

    let (mut out, mut found, expected) = match (head.status, &begin) {
        (StatusCode::PARTIAL_CONTENT, Some((bytes, _))) => {
            let Some((first, total)) = range(&head.headers).filter(|(first, _)| first == bytes) else {
                let found = text(&head.headers, header::CONTENT_RANGE).unwrap_or("no Content-Range").to_owned();
                return Err(Error::Range { url: url.to_owned(), found, expected: *bytes, part: part.data.clone() });
            };
            let out = OpenOptions::new().append(true).open(&part.data).map_err(Error::at(&part.data))?;
            (out, first, total.or(length.map(|length| first + length)))
        }
        (StatusCode::RANGE_NOT_SATISFIABLE, Some(_)) => return Ok(End::Stale),
        (StatusCode::OK, _) => {
            part.forget()?;
            // A weak validator (W/) does not promise the same bytes.
            let strong = text(&head.headers, header::ETAG).filter(|tag| !tag.starts_with("W/"));
            if let Some(tag) = strong.or_else(|| text(&head.headers, header::LAST_MODIFIED)) {
                fs::write(&part.tag, tag).map_err(Error::at(&part.tag))?;
            }
            (File::create(&part.data).map_err(Error::at(&part.data))?, 0, length)
        }
        (StatusCode::NOT_FOUND, _) => return Err(Error::NotThere { url: url.to_owned() }),
        (status, _) => return Err(Error::Status { url: url.to_owned(), status: status.as_u16() }),
    };

    let mut reader = body.as_reader();
    let mut buffer = vec![0; 1 << 16];
    let broken = loop {
        match reader.read(&mut buffer) {
            Ok(0) => break false,
            Ok(count) => {
                out.write_all(&buffer[..count]).map_err(Error::at(&part.data))?;
                found += count as u64;
                *moved += count as u64;
            }
            // An interrupted connection is an error or an early end, by chance.
            Err(_) => break true,
        }
    };
    out.sync_all().map_err(Error::at(&part.data))?;
    match expected {
        Some(expected) if found < expected => Ok(End::Short { found, expected }),
        None if broken => Ok(End::Short { found, expected: found }),
        _ => Ok(End::Whole),
    }
}
