//! The socket of a connection, and the end of its client.
//!
//! - Input: an accepted socket.
//! - Output: a [`ClientSocket`] that hyper reads and writes, and a [`ClientEnd`].
//! - Invariants: the end of a client is noticed although bytes before it were not read. hyper reads
//!   nothing while it answers a request, if further bytes of the client are in its buffer.
//! - Not here: HTTP.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// A socket that shares its reading half with a [`ClientEnd`].
#[derive(Debug)]
pub(crate) struct ClientSocket {
    read: Arc<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

/// The end of a client: it closed its connection, or its sending half.
#[derive(Debug)]
pub(crate) struct ClientEnd(Arc<OwnedReadHalf>);

/// Returns the parts of an accepted socket.
pub(crate) fn parts(stream: TcpStream) -> (ClientSocket, ClientEnd) {
    let (read, write) = stream.into_split();
    let read = Arc::new(read);
    (ClientSocket { read: Arc::clone(&read), write }, ClientEnd(read))
}

impl ClientEnd {
    /// Waits until the client is gone.
    pub(crate) async fn wait(self) {
        while let Ok(ready) = self.0.ready(END).await {
            if ready.is_read_closed() {
                return;
            }
            pause().await;
        }
    }
}

/// Readiness that includes the end of a client, but no bytes.
#[cfg(target_os = "linux")]
const END: Interest = Interest::PRIORITY;

/// Other systems have no such readiness, so unread bytes make a wait return early.
#[cfg(not(target_os = "linux"))]
const END: Interest = Interest::READABLE;

/// Lets time pass between two looks at a socket with unread bytes.
async fn pause() {
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream: &TcpStream = self.read.as_ref().as_ref();
        loop {
            ready!(stream.poll_read_ready(context))?;
            match stream.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(context)
    }
}
