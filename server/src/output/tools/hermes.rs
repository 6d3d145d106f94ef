//! Calls of Hermes and Qwen: `<tool_call>{"name": …, "arguments": …}</tool_call>`, once per call.

use super::super::cursor::{Cursor, Stop};
use super::{Format, ToolStep, end_of_object, head};

pub(super) const OPEN: &str = "<tool_call>";
pub(super) const CLOSE: &str = "</tool_call>";

pub(super) const FORMAT: Format = Format { markers: &[OPEN], is_bare: false, open, id: ("call_", 24) };

fn open(cursor: &mut Cursor<'_>) -> Result<ToolStep, Stop> {
    cursor.literal(OPEN)?;
    cursor.spaces()?;
    head(cursor, close)
}

fn close(cursor: &mut Cursor<'_>) -> Result<ToolStep, Stop> {
    end_of_object(cursor)?;
    cursor.spaces()?;
    cursor.literal(CLOSE)?;
    Ok(ToolStep::Text)
}
