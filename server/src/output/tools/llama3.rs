//! Calls of Llama 3: `{"name": …, "parameters": …}` at the beginning of the answer, or anywhere
//! after `<|python_tag|>`. A semicolon separates calls.

use super::super::cursor::{Cursor, Stop};
use super::{Format, ToolStep, end_of_object, head};

pub(super) const PYTHON_TAG: &str = "<|python_tag|>";

pub(super) const FORMAT: Format = Format { markers: &[PYTHON_TAG], is_bare: true, open, id: ("call_", 24) };

fn open(cursor: &mut Cursor<'_>) -> Result<ToolStep, Stop> {
    if cursor.optional(PYTHON_TAG)? {
        cursor.spaces()?;
    }
    head(cursor, close)
}

fn close(cursor: &mut Cursor<'_>) -> Result<ToolStep, Stop> {
    end_of_object(cursor)?;
    Ok(ToolStep::Next(separator))
}

fn separator(cursor: &mut Cursor<'_>) -> Result<ToolStep, Stop> {
    cursor.spaces()?;
    if !cursor.optional(";")? {
        return Ok(ToolStep::Text);
    }
    cursor.spaces()?;
    head(cursor, close)
}
