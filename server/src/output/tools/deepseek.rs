//! Calls of `DeepSeek`: a list of calls with a name and arguments. V3 and R1 write `function`, the
//! separator, the name, and the arguments in a code block. V3.1 writes the name, the separator and
//! the arguments.

use super::super::cursor::{Cursor, Stop};
use super::{CallHead, Format, ToolStep};

pub(super) const CALLS_BEGIN: &str = "<｜tool▁calls▁begin｜>";
pub(super) const CALL_BEGIN: &str = "<｜tool▁call▁begin｜>";
pub(super) const SEPARATOR: &str = "<｜tool▁sep｜>";
pub(super) const CALL_END: &str = "<｜tool▁call▁end｜>";
pub(super) const CALLS_END: &str = "<｜tool▁calls▁end｜>";

pub(super) const BLOCK_BEGIN: &str = "```json";
pub(super) const BLOCK_END: &str = "```";

pub(super) const FORMAT: Format = Format { markers: &[CALLS_BEGIN], is_bare: false, open, id: ("call_", 24) };

fn open(cursor: &mut Cursor<'_>) -> Result<ToolStep, Stop> {
    cursor.literal(CALLS_BEGIN)?;
    cursor.spaces()?;
    call(cursor)
}

fn call(cursor: &mut Cursor<'_>) -> Result<ToolStep, Stop> {
    cursor.literal(CALL_BEGIN)?;
    cursor.spaces()?;
    let first = cursor.name()?;
    cursor.literal(SEPARATOR)?;
    cursor.spaces()?;
    if cursor.sees('{')? {
        return Ok(ToolStep::Call(CallHead {
            name: first.to_owned(),
            id: None,
            arguments: None,
            then: call_end,
        }));
    }
    let name = cursor.name()?.to_owned();
    cursor.spaces()?;
    cursor.literal(BLOCK_BEGIN)?;
    cursor.spaces()?;
    if !cursor.sees('{')? {
        return cursor.never();
    }
    Ok(ToolStep::Call(CallHead { name, id: None, arguments: None, then: block_end }))
}

fn block_end(cursor: &mut Cursor<'_>) -> Result<ToolStep, Stop> {
    cursor.spaces()?;
    cursor.literal(BLOCK_END)?;
    call_end(cursor)
}

fn call_end(cursor: &mut Cursor<'_>) -> Result<ToolStep, Stop> {
    cursor.spaces()?;
    cursor.literal(CALL_END)?;
    Ok(ToolStep::Next(following))
}

fn following(cursor: &mut Cursor<'_>) -> Result<ToolStep, Stop> {
    cursor.spaces()?;
    if cursor.optional(CALLS_END)? { Ok(ToolStep::Text) } else { call(cursor) }
}
