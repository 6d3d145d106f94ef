//! Parses scripts of generated pages as a browser does.

use rquickjs_core::function::Constructor;
use rquickjs_core::{CatchResultExt as _, Context, Runtime, Value};

pub(crate) fn assert_scripts_parse(page: &str) {
    let scripts = scripts(page);
    assert!(!scripts.is_empty(), "the page has no script");
    for script in scripts {
        if let Err(error) = parse(script) {
            panic!("{error}\n{script}");
        }
    }
}

/// Returns the scripts without data.
fn scripts(page: &str) -> Vec<&str> {
    let elements = page.split("<script").skip(1).filter_map(|rest| rest.split_once('>'));
    let code = elements.filter(|(attributes, _)| !attributes.contains("type=\"application/json\""));
    code.filter_map(|(_, rest)| Some(rest.split_once("</script>")?.0)).collect()
}

/// Parses a script as the body of a function, which is not run.
fn parse(script: &str) -> Result<(), String> {
    let context = Context::full(&Runtime::new().unwrap()).unwrap();
    context.with(|context| {
        let function: Constructor<'_> = context.globals().get("Function").unwrap();
        let parsed = function.construct::<_, Value<'_>>((script,)).catch(&context);
        parsed.map(drop).map_err(|error| error.to_string())
    })
}

#[test]
fn early_errors_are_errors() {
    for faulty in [
        "\"use strict\"; const bar = 1; function bar() {}",
        "let a = 1; let a = 2;",
        "function f() { break; }",
        "\"use strict\"; with (a) {}",
        "const a = [1, 2;",
    ] {
        assert!(parse(faulty).is_err(), "{faulty}");
    }
    let page =
        "<script type=\"application/json\">{\"a\": 1}</script><script>\nconst a = x => `${x}`;\n</script>";
    assert_eq!(scripts(page), ["\nconst a = x => `${x}`;\n"]);
    assert_scripts_parse(page);
}
