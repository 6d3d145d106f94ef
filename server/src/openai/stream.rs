//! Server-sent events.
//!
//! - Input: events of a generation, turned into chunks by the endpoint.
//! - Output: a response whose body grows.
//! - Invariants: the response starts with the first chunk, so that errors before it have a status.
//!   Later errors are events. When the client is gone, the stream is dropped, and the generation
//!   with it. A client that does not read does not slow down its generation.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::sampling::StreamOptions;
use super::{AnswerHead, Usage};
use crate::error::ApiError;
use crate::generation::{GenerationEvent, GenerationRequest};

/// How an endpoint streams its answer.
pub(crate) trait Chunks: Send + 'static {
    /// Returns the events of the stream for an event of the generation.
    fn on_event(&mut self, event: GenerationEvent) -> Vec<Bytes>;

    /// Returns the last events.
    fn on_end(&mut self) -> Vec<Bytes>;

    /// Returns the last events after an error.
    fn on_error(&mut self, error: &ApiError) -> Vec<Bytes>;
}

/// Returns an event with JSON data.
pub(crate) fn data(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// Returns the event that ends a stream of OpenAI.
const fn done() -> Bytes {
    Bytes::from_static(b"data: [DONE]\n\n")
}

/// Writes the chunks of OpenAI's streams.
pub(crate) struct ChunkWriter {
    pub(crate) head: AnswerHead,
    pub(crate) object: &'static str,
    pub(crate) options: StreamOptions,
}

impl ChunkWriter {
    /// Returns the event of a chunk with these choices.
    pub(crate) fn chunk(&self, choices: &Value, usage: &Usage) -> Bytes {
        let mut chunk = self.head.object(self.object, choices);
        if self.options.continuous_usage_stats {
            chunk["usage"] = usage.json();
        } else if self.options.include_usage {
            chunk["usage"] = Value::Null;
        }
        data(&chunk)
    }

    /// Returns the last events: the usage, if the request asks for it, and the end.
    pub(crate) fn end(&self, usage: &Usage) -> Vec<Bytes> {
        let mut events = Vec::new();
        if self.options.include_usage {
            let mut last = self.head.object(self.object, &Value::Array(Vec::new()));
            last["usage"] = usage.json();
            events.push(data(&last));
        }
        events.push(done());
        events
    }
}

/// Returns the last events after an error.
pub(crate) fn failed(error: &ApiError) -> Vec<Bytes> {
    vec![data(&error.body()), done()]
}

struct Streaming<C> {
    generation: GenerationRequest,
    chunks: C,
    ready: Vec<Bytes>,
    is_over: bool,
}

impl<C: Chunks> Streaming<C> {
    /// Waits until there are bytes to send, or the stream is over.
    async fn fill(&mut self) -> Result<(), ApiError> {
        while self.ready.is_empty() && !self.is_over {
            let event = self.generation.next().await?;
            self.is_over = event.is_none();
            self.ready = match event {
                Some(event) => self.chunks.on_event(event),
                None => self.chunks.on_end(),
            };
        }
        Ok(())
    }

    /// Sends the events that are ready.
    fn send_ready(&mut self, sender: &UnboundedSender<Bytes>) {
        for bytes in self.ready.drain(..) {
            // The next wait notices a client that is gone.
            let _gone = sender.send(bytes);
        }
    }

    /// Sends all events. Returns early if the client is gone.
    async fn send(mut self, sender: UnboundedSender<Bytes>) {
        loop {
            self.send_ready(&sender);
            if self.is_over {
                return;
            }
            let filled = tokio::select! {
                () = sender.closed() => return,
                filled = self.fill() => filled,
            };
            if let Err(error) = filled {
                self.is_over = true;
                self.ready = self.chunks.on_error(&error);
            }
        }
    }
}

/// Returns a response that streams a generation. It waits for the first event.
///
/// # Errors
/// The generation fails before its first event.
pub(crate) async fn respond<C: Chunks>(
    generation: GenerationRequest,
    chunks: C,
) -> Result<Response, ApiError> {
    let mut streaming = Streaming { generation, chunks, ready: Vec::new(), is_over: false };
    streaming.fill().await?;
    // A client that does not read must not keep its place in the batch, so events do not wait for
    // it. Their number is bounded by the length of the answer.
    let (sender, events) = unbounded_channel();
    // The first events leave with the head of the response.
    streaming.send_ready(&sender);
    tokio::spawn(streaming.send(sender));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::from_stream(EventStream(events))).into_response())
}

/// The body of a stream.
struct EventStream(UnboundedReceiver<Bytes>);

impl Stream for EventStream {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|event| event.map(Ok))
    }
}
