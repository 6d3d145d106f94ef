//! Calls of Mistral: `[TOOL_CALLS][{"name": …, "arguments": …}, …]`, or
//! `[TOOL_CALLS]name[ARGS]{…}` once per call. Later models put `[CALL_ID]id` before `[ARGS]`, and
//! some leave `[ARGS]` out.

use super::super::cursor::{Cursor, Stop};
use super::{CallHead, Format, ToolStep, end_of_object, head};

pub(super) const CALLS: &str = "[TOOL_CALLS]";
pub(super) const CALL_ID: &str = "[CALL_ID]";
pub(super) const ARGUMENTS: &str = "[ARGS]";

/// Mistral's templates require ids of nine letters and digits.
pub(super) const FORMAT: Format = Format { markers: &[CALLS], is_bare: false, open, id: ("", 9) };

fn open(cursor: &mut Cursor<'_>) -> Result<ToolStep, Stop> {
    cursor.literal(CALLS)?;
    cursor.spaces()?;
    if cursor.optional("[")? {
        cursor.spaces()?;
        return head(cursor, element_end);
    }
    let name = cursor.name()?.to_owned();
    let id = if cursor.optional(CALL_ID)? { Some(cursor.name()?.to_owned()) } else { None };
    cursor.optional(ARGUMENTS)?;
    cursor.spaces()?;
    if !cursor.sees('{')? {
        return cursor.never();
    }
    Ok(ToolStep::Call(CallHead { name, id, arguments: None, then: text }))
}

fn text(_: &mut Cursor<'_>) -> Result<ToolStep, Stop> {
    Ok(ToolStep::Text)
}

fn element_end(cursor: &mut Cursor<'_>) -> Result<ToolStep, Stop> {
    end_of_object(cursor)?;
    cursor.spaces()?;
    if cursor.optional("]")? {
        return Ok(ToolStep::Text);
    }
    cursor.literal(",")?;
    Ok(ToolStep::Next(element))
}

fn element(cursor: &mut Cursor<'_>) -> Result<ToolStep, Stop> {
    cursor.spaces()?;
    head(cursor, element_end)
}
