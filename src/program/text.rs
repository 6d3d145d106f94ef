//! The text form of programs at any compiler stage. It satisfies `parse(print(p)) == p`.
//!
//! Each given value and each op has one line, such as `%5 "layers.0.mlp" : bf16[1,4,64] {_,_,tp} =
//! matmul(spec=bsi,oi->bso) %3, %4`. Several results are listed as `%6 : f32[4], %7 : f32[] = …`.
//! Braces contain data of a later stage (a layout), which this module keeps without parsing it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use smallvec::SmallVec;

use crate::base::{DType, Diagnostic, Diagnostics, Id, IdVec, Shape};

use super::graph::{Form, Op, Program, Role, Source, Value, ValueId};
use super::op::Kind;

/// Additions of a later stage to the text of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Names of the mesh axes, for attributes of collectives.
    pub axis_names: Vec<String>,
    /// Lines after the program name, such as the mesh.
    pub header: Vec<String>,
    /// Content of the braces, by value.
    pub layouts: BTreeMap<usize, String>,
}

/// Returns the text of an op without types and layouts: `%5 = matmul(spec=…) %3, %4`.
#[must_use]
pub fn op_text(program: &Program, op: &Op) -> String {
    let label = |id: &ValueId| match program.values[*id].name.as_str() {
        "" => id.to_string(),
        name => format!("{id} \"{name}\""),
    };
    let results: Vec<String> = op.results.iter().map(label).collect();
    format!("{} = {}", results.join(", "), call_text(op, &numbered_axes(16)))
}

fn numbered_axes(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("axis{index}")).collect()
}

fn call_text(op: &Op, axis_names: &[String]) -> String {
    let attributes = op.kind.attributes(axis_names);
    let mut text = op.kind.row().name.to_owned();
    if !attributes.is_empty() {
        let list: Vec<String> = attributes.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let _ = write!(text, "({})", list.join("; "));
    }
    for (index, operand) in op.operands.iter().enumerate() {
        let _ = write!(text, "{}{operand}", if index == 0 { " " } else { ", " });
    }
    text
}

/// Prints the text of a logical program.
#[must_use]
pub fn print(program: &Program) -> String {
    print_with(program, &Notes::default())
}

/// Prints the text of a program with the notes of a later stage.
#[must_use]
pub fn print_with(program: &Program, notes: &Notes) -> String {
    let mut text = format!("program \"{}\"\n", program.name);
    for line in &notes.header {
        let _ = writeln!(text, "{line}");
    }
    let typed = |id: ValueId| {
        let value = &program.values[id];
        let mut text = id.to_string();
        if !value.name.is_empty() {
            let _ = write!(text, " \"{}\"", value.name);
        }
        let _ = write!(text, " : {}{}", value.dtype, value.shape);
        if let Some(layout) = notes.layouts.get(&id.index()) {
            let _ = write!(text, " {{{layout}}}");
        }
        text
    };
    for (id, value) in program.values.iter() {
        let Some(keyword) = value.role.keyword() else { continue };
        let _ = write!(text, "{keyword} {}", typed(id));
        if let Some(source) = &value.source {
            let _ = write!(text, " {source}");
        }
        text.push('\n');
    }
    for (_, op) in program.ops.iter() {
        let results: Vec<String> = op.results.iter().map(|id| typed(*id)).collect();
        let _ = writeln!(text, "{} = {}", results.join(", "), call_text(op, &notes.axis_names));
    }
    for (name, id) in &program.outputs {
        let _ = writeln!(text, "output \"{name}\" {id}");
    }
    text
}

/// Parses the text of a logical program.
///
/// # Errors
/// All invalid lines, with their numbers.
pub fn parse(text: &str) -> Result<Program, Diagnostics> {
    parse_with(text, &|header| match header.first() {
        Some(line) => Err(format!("`{line}` is not a line of a program")),
        None => Ok(Vec::new()),
    })
    .map(|(program, _)| program)
}

/// A function that returns the names of the mesh axes from the header lines of a text.
pub type AxesOf<'a> = dyn Fn(&[String]) -> Result<Vec<String>, String> + 'a;

/// Parses the text of a program at any stage. `axes` returns the mesh axis names from the header
/// lines.
///
/// # Errors
/// All invalid lines, with their numbers.
pub fn parse_with(text: &str, axes: &AxesOf<'_>) -> Result<(Program, Notes), Diagnostics> {
    let mut problems = Diagnostics::new();
    let mut notes = Notes::default();
    let mut program = Program::default();
    let mut values: BTreeMap<usize, Value> = BTreeMap::new();
    let is_body = |line: &str| {
        line.starts_with(['%'])
            || line.split(' ').next().is_some_and(|w| matches!(w, "input" | "param" | "state" | "output"))
    };
    let lines: Vec<(usize, &str)> = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .collect();
    notes.header = lines
        .iter()
        .skip(1)
        .take_while(|(_, line)| !is_body(line))
        .map(|(_, line)| (*line).to_owned())
        .collect();
    match axes(&notes.header) {
        Ok(names) => notes.axis_names = names,
        Err(message) => problems.push(Diagnostic::new("line 2", message)),
    }
    for (index, (number, line)) in lines.iter().enumerate() {
        let parsed = if index == 0 {
            TextCursor::new(line).keyword("program").and_then(|mut cursor| {
                program.name = cursor.quoted()?;
                cursor.end()
            })
        } else if index <= notes.header.len() {
            Ok(())
        } else {
            body_line(line, &mut program, &mut values, &mut notes)
        };
        if let Err(message) = parsed {
            problems.push(Diagnostic::new(format!("line {number}"), message).found(format!("`{line}`")));
        }
    }
    for (expected, index) in values.keys().enumerate() {
        if expected != *index {
            problems
                .push(Diagnostic::new(format!("%{expected}"), "ids have no gaps, this one is never defined"));
            break;
        }
    }
    program.values = values.into_values().collect::<IdVec<ValueId, Value>>();
    problems.into_result((program, notes))
}

fn body_line(
    line: &str,
    program: &mut Program,
    values: &mut BTreeMap<usize, Value>,
    notes: &mut Notes,
) -> Result<(), String> {
    if let Ok(mut cursor) = TextCursor::new(line).keyword("output") {
        let name = cursor.quoted()?;
        program.outputs.push((name, cursor.value()?));
        return cursor.end();
    }
    let roles = [Role::Input, Role::Param, Role::State];
    let role =
        roles.into_iter().find(|role| line.split(' ').next() == role.keyword()).unwrap_or(Role::Result);
    let mut cursor = match role.keyword() {
        Some(keyword) => TextCursor::new(line).keyword(keyword)?,
        None => TextCursor::new(line),
    };
    let mut ids = SmallVec::new();
    loop {
        let (id, value) = cursor.declared(role, notes)?;
        ids.push(id);
        if values.insert(id.index(), value).is_some() {
            return Err(format!("{id} is defined twice"));
        }
        if role != Role::Result || !cursor.rest.starts_with(',') {
            break;
        }
        cursor.expect(",")?;
    }
    let mut source = None;
    if role == Role::Result {
        cursor.expect("=")?;
        program.ops.push(cursor.call(ids.clone(), &notes.axis_names)?);
    } else if cursor.rest.starts_with("from") {
        cursor.expect("from")?;
        let tensor = cursor.quoted()?;
        cursor.expect("+")?;
        let (offset, form) = cursor.rest.split_once(' ').unwrap_or((cursor.rest, ""));
        let element_offset = offset.parse().map_err(|_| format!("`{offset}` is no offset"))?;
        let form = match form {
            "" => Form::Numbers,
            form => Form::parse(form).ok_or_else(|| format!("`{form}` is not a form of a source"))?,
        };
        cursor.rest = "";
        source = Some(Source { tensor, element_offset, form });
    }
    cursor.end()?;
    if let Some(value) = ids.first().and_then(|id| values.get_mut(&id.index())) {
        value.source = source;
    }
    Ok(())
}

struct TextCursor<'a> {
    rest: &'a str,
}

impl<'a> TextCursor<'a> {
    const fn new(rest: &'a str) -> Self {
        Self { rest }
    }

    fn keyword(mut self, word: &str) -> Result<Self, String> {
        self.expect(word)?;
        Ok(self)
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        self.rest = self
            .rest
            .strip_prefix(word)
            .ok_or_else(|| format!("expected `{word}` before `{}`", self.rest))?;
        self.rest = self.rest.trim_start();
        Ok(())
    }

    fn end(&self) -> Result<(), String> {
        if self.rest.is_empty() { Ok(()) } else { Err(format!("`{}` is left over", self.rest)) }
    }

    /// Consumes and returns the text between two delimiters.
    fn between(&mut self, open: char, close: char) -> Result<&'a str, String> {
        let inner = self
            .rest
            .strip_prefix(open)
            .ok_or_else(|| format!("expected `{open}` before `{}`", self.rest))?;
        let (found, rest) = inner.split_once(close).ok_or_else(|| format!("`{open}` without `{close}`"))?;
        self.rest = rest.trim_start();
        Ok(found)
    }

    fn quoted(&mut self) -> Result<String, String> {
        self.between('"', '"').map(str::to_owned)
    }

    fn value(&mut self) -> Result<ValueId, String> {
        let digits =
            self.rest.strip_prefix('%').ok_or_else(|| format!("expected a value before `{}`", self.rest))?;
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let index = digits[..end].parse().map_err(|_| format!("`%{}` is no value", &digits[..end]))?;
        self.rest = digits[end..].trim_start();
        Ok(ValueId::from_index(index))
    }

    /// Parses a declaration such as `%5 "layers.0.mlp" : bf16[1,4,64] {_,_,tp}`.
    fn declared(&mut self, role: Role, notes: &mut Notes) -> Result<(ValueId, Value), String> {
        let id = self.value()?;
        let name = if self.rest.starts_with('"') { self.quoted()? } else { String::new() };
        self.expect(":")?;
        let (dtype, shape) = self.typed()?;
        if self.rest.starts_with('{') {
            notes.layouts.insert(id.index(), self.between('{', '}')?.to_owned());
        }
        Ok((id, Value { name, shape, dtype, role, source: None }))
    }

    /// Parses a type such as `bf16[1,4]`.
    fn typed(&mut self) -> Result<(DType, Shape), String> {
        let bracket = self.rest.find('[').ok_or_else(|| format!("expected a type before `{}`", self.rest))?;
        let dtype = self.rest[..bracket].parse().map_err(|error| format!("{error}"))?;
        self.rest = &self.rest[bracket..];
        let sizes = self.between('[', ']')?;
        let shape = sizes
            .split(',')
            .filter(|size| !size.is_empty())
            .map(|size| size.parse::<usize>().map_err(|_| format!("`{size}` is no size")))
            .collect::<Result<Shape, String>>()?;
        Ok((dtype, shape))
    }

    /// Parses a call such as `matmul(spec=bsi,oi->bso) %3, %4`.
    fn call(&mut self, results: SmallVec<[ValueId; 2]>, axis_names: &[String]) -> Result<Op, String> {
        let end = self.rest.find(['(', ' ']).unwrap_or(self.rest.len());
        let name = &self.rest[..end];
        self.rest = self.rest[end..].trim_start();
        let list = if self.rest.starts_with('(') { self.between('(', ')')? } else { "" };
        let attribute = |key: &'static str| {
            list.split("; ")
                .filter_map(|pair| pair.split_once('='))
                .find(|(found, _)| *found == key)
                .map(|(_, value)| value.to_owned())
                .ok_or_else(|| format!("`{name}` lacks `{key}`"))
        };
        let kind = Kind::from_attributes(name, &attribute, axis_names)?;
        let mut operands = Vec::new();
        while !self.rest.is_empty() {
            if !operands.is_empty() {
                self.expect(",")?;
            }
            operands.push(self.value()?);
        }
        Ok(Op { kind, operands, results })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Builder;

    #[test]
    fn a_stack_of_tensors_survives_its_text() {
        let mut build = Builder::new("experts");
        let x = build.input("x", [2, 5], DType::F32);
        let (tensor, element_offset) = ("l.{0..3}.{gate,up}.weight".to_owned(), 7);
        let source = Source { tensor, element_offset, form: Form::RowBytes { row_elems: 5 } };
        let weight = build.param_from("experts", [3, 2, 4, 5], DType::F32, source);
        let y = build.matmul("bi,egoi->bego", x, weight);
        build.output("y", y);
        let program = build.finish().unwrap();
        let line = r#"param %1 "experts" : f32[3,2,4,5] from "l.{0..3}.{gate,up}.weight"+7 bytes/5"#;
        assert!(print(&program).contains(line), "{}", print(&program));
        assert_eq!(parse(&print(&program)).unwrap(), program);
        // A layout has braces too.
        let notes = Notes { layouts: [(1, "tp,_,_,_".to_owned())].into(), ..Notes::default() };
        let text = print_with(&program, &notes);
        assert!(text.contains("f32[3,2,4,5] {tp,_,_,_} from \"l.{0..3}"), "{text}");
        assert_eq!(parse_with(&text, &|_| Ok(Vec::new())).unwrap(), (program, notes));
    }

    #[test]
    fn an_order_of_dims_survives_its_text() {
        let mut build = Builder::new("experts");
        for (name, form) in [("a", "dims/0,3,21"), ("b", "mxfp4/0,21,3")] {
            let form = Form::parse(form).unwrap();
            let source = Source { tensor: name.to_owned(), element_offset: 0, form };
            let weight = build.param_from(name, [3, 2, 4, 32], DType::F32, source);
            build.output(name, weight);
        }
        let program = build.finish().unwrap();
        let text = print(&program);
        assert!(text.contains("from \"a\"+0 dims/0,3,21\n"), "{text}");
        assert!(text.contains("from \"b\"+0 mxfp4/0,21,3\n"), "{text}");
        assert_eq!(parse(&text).unwrap(), program);
        let message = parse(&text.replace("0,3,21", "0,3,2")).unwrap_err().to_string();
        assert!(message.contains("`dims/0,3,2` is not a form of a source"), "{message}");
    }

    #[test]
    fn a_stack_that_does_not_fit_its_param_is_refused() {
        let refused = |tensor: &str| {
            let mut build = Builder::new("experts");
            let source = Source { tensor: tensor.to_owned(), element_offset: 0, form: Form::Numbers };
            let weight = build.param_from("w", [3, 4], DType::F32, source);
            build.output("w", weight);
            build.finish().map(drop).map_err(|problems| problems.to_string())
        };
        assert_eq!(refused("l.{0..3}.w"), Ok(()));
        let place = "%0 \"w\": the checkpoint tensors do not fit the param: found ";
        assert_eq!(
            refused("l.{0..4}.w"),
            Err(format!("{place}the first dims of [3,4] do not count 4 tensors"))
        );
        assert_eq!(refused("l.{0..4.w"), Err(format!("{place}`l.{{0..4.w` has a `{{` without its partner")));
    }
}
