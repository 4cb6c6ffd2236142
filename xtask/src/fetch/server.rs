//! A web server for the tests: it serves one file, as the test requests, on a port of the loopback interface.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The answer to one request. The last one is used for all that follow.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The file, or the requested range.
    File,
    /// The same, but the connection ends after this many bytes of the body.
    Cut(usize),
    /// The whole file, whatever was requested.
    Whole,
    /// A range that was not requested.
    OtherRange,
    /// A status without a body.
    Status(u16),
}

/// The file, and the requests so far.
#[derive(Debug)]
struct State {
    body: Vec<u8>,
    tag: Option<String>,
    answers: Vec<Answer>,
    /// Path and `Range` of each request.
    requests: Vec<(String, Option<String>)>,
    stopped: bool,
}

pub(crate) struct Server {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn new(body: &[u8], tag: Option<&str>, answers: &[Answer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (body, tag, answers) = (body.to_vec(), tag.map(str::to_owned), answers.to_vec());
        let state = Arc::new(Mutex::new(State { body, tag, answers, requests: Vec::new(), stopped: false }));
        let shared = Arc::clone(&state);
        let serve = move || {
            for stream in listener.incoming() {
                let mut state = shared.lock().expect("no panic");
                if state.stopped {
                    return;
                }
                // A client that leaves early is not an error of the server.
                let _ = stream.and_then(|stream| state.answer(stream));
            }
        };
        Self { url, state, thread: Some(std::thread::spawn(serve)) }
    }

    pub(crate) fn requests(&self) -> Vec<(String, Option<String>)> {
        self.state.lock().expect("no panic").requests.clone()
    }
    /// Another version of the file.
    pub(crate) fn replace(&self, body: &[u8], tag: &str) {
        let mut state = self.state.lock().expect("no panic");
        (state.body, state.tag) = (body.to_vec(), Some(tag.to_owned()));
    }
    pub(crate) fn then(&self, answers: &[Answer]) {
        self.state.lock().expect("no panic").answers = answers.to_vec();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.lock().expect("no panic").stopped = true;
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server ends");
        }
    }
}

impl State {
    fn answer(&mut self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let (mut range, mut if_range) = (None, None);
        for line in lines {
            let line = line?;
            let Some((name, value)) = line.split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "range" => range = Some(value.to_owned()),
                "if-range" => if_range = Some(value.to_owned()),
                _ => {}
            }
        }
        self.requests.push((path, range.clone()));
        let answer = if self.answers.len() > 1 { self.answers.remove(0) } else { self.answers[0].clone() };

        let total = self.body.len();
        let asked = range.as_deref().and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
        let asked = asked.filter(|_| if_range == self.tag);
        let (status, first) = match (&answer, asked) {
            (Answer::Status(status), _) => {
                return write!(stream, "HTTP/1.1 {status} Said\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
            (Answer::OtherRange, Some(first)) => ("206 Partial Content", first + 1),
            (Answer::Whole | Answer::OtherRange, _) | (_, None) => ("200 OK", 0),
            (_, Some(first)) if first >= total => {
                return write!(
                    stream,
                    "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */{total}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
            }
            (_, Some(first)) => ("206 Partial Content", first),
        };
        let body = &self.body[first..];
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n", body.len())?;
        if let Some(tag) = &self.tag {
            write!(stream, "ETag: {tag}\r\n")?;
        }
        if status.starts_with("206") {
            write!(stream, "Content-Range: bytes {first}-{}/{total}\r\n", total - 1)?;
        }
        write!(stream, "\r\n")?;
        let sent = if let Answer::Cut(bytes) = answer { bytes.min(body.len()) } else { body.len() };
        stream.write_all(&body[..sent])
    }
}
