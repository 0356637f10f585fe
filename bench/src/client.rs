//! A keep-alive HTTP/1.1 client that costs little, so that what is measured is the server.

use anyhow::{Context, Result, bail};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// One connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    host: String,
    token: String,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, token: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
            host: address.to_string(),
            token: token.into(),
        })
    }

    /// Sends a request and reads the answer's status and body.
    pub(crate) async fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<(u16, Vec<u8>)> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.host,
            self.token,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        let (status, length) = self.head().await?;
        let mut body = vec![0; length.context("the answer has no length")?];
        self.stream.read_exact(&mut body).await?;
        Ok((status, body))
    }

    async fn head(&mut self) -> Result<(u16, Option<usize>)> {
        let mut line = String::new();
        self.stream.read_line(&mut line).await?;
        let status = line.split(' ').nth(1).context("no status")?.parse()?;
        let mut length = None;
        loop {
            line.clear();
            if self.stream.read_line(&mut line).await? == 0 {
                bail!("the connection ended in the head");
            }
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                return Ok((status, length));
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = Some(value.trim().parse()?);
            }
        }
    }

    /// Opens an event stream and leaves it open.
    pub(crate) async fn events(&mut self, path: &str) -> Result<()> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
            self.host, self.token
        );
        self.stream.get_mut().write_all(request.as_bytes()).await?;
        let (status, _) = self.head().await?;
        if status != 200 {
            bail!("the event stream answered {status}");
        }
        Ok(())
    }

    /// Reads lines of an event stream until one contains `text`.
    pub(crate) async fn until(&mut self, text: &str) -> Result<()> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.stream.read_line(&mut line).await? == 0 {
                bail!("the event stream ended before `{text}`");
            }
            if line.contains(text) {
                return Ok(());
            }
        }
    }
}

/// Requests a second over `connections` connections for `time`.
pub(crate) async fn throughput(
    address: SocketAddr,
    token: &str,
    path: &str,
    connections: usize,
    time: Duration,
) -> Result<f64> {
    let start = Instant::now();
    let tasks = (0..connections).map(|_| {
        let (token, path) = (token.to_owned(), path.to_owned());
        tokio::spawn(async move {
            let mut client = Client::connect(address, &token).await?;
            let mut done = 0u64;
            while start.elapsed() < time {
                let (status, _) = client.request("GET", &path, "").await?;
                if status != 200 {
                    bail!("{path} answered {status}");
                }
                done += 1;
            }
            Ok(done)
        })
    });
    let mut total = 0;
    for task in tasks.collect::<Vec<_>>() {
        total += task.await??;
    }
    Ok(total as f64 / start.elapsed().as_secs_f64())
}
