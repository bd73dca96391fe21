//! include/limiter.h is what src/ffi generates: fails on drift; `LIMITER_WRITE_HEADER=1` writes it.
use std::path::Path;

/// What a C reader wants of cbindgen's output: headings of their own, short comments on one line, and
/// nothing that only concerns Rust.
fn polish(generated: &str) -> String {
    // cbindgen puts the trailer behind the include guard.
    let guard_end = "#endif  /* LIMITER_H */\n";
    let generated = generated.replacen(guard_end, "", 1).trim_end().to_owned() + "\n\n" + guard_end;
    let mut polished = String::with_capacity(generated.len());
    let mut lines = generated.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "/**" {
            let block: Vec<&str> = lines.by_ref().take_while(|l| l.trim() != "*/").collect();
            polished.push_str(&comment(line.trim_end_matches("/**"), &block));
        } else if !(line.is_empty() && polished.ends_with("\n\n")) {
            polished.push_str(line.trim_end());
            polished.push('\n');
        }
    }
    polished
}

/// No line of the header is longer.
const WIDTH: usize = 100;

/// Paragraphs filled to `width`; what is indented (tables, code) stays as it is.
fn fill(text: &[&str], width: usize) -> Vec<String> {
    let mut filled: Vec<String> = Vec::new();
    let mut open = false;
    for line in text {
        let plain = !line.is_empty() && !line.starts_with(' ');
        for word in line.split(' ').filter(|_| plain) {
            match filled
                .last_mut()
                .filter(|last| open && last.len() + word.len() < width)
            {
                Some(last) => *last += &format!(" {word}"),
                None => filled.push(word.into()),
            }
            open = true;
        }
        if !plain {
            filled.push((*line).into());
        }
        open = plain;
    }
    filled
}

/// One doc comment: its `== Title ==` part, if it has one, becomes a heading before it.
fn comment(indent: &str, block: &[&str]) -> String {
    let mut text: Vec<&str> = block
        .iter()
        .map(|line| line.trim_start().trim_start_matches('*').trim_end())
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    if let Some(safety) = text.iter().position(|line| *line == "# Safety") {
        text.truncate(safety);
    }
    let mut out = String::new();
    if let Some(title) = text[0]
        .strip_prefix("== ")
        .and_then(|t| t.strip_suffix(" =="))
    {
        let end = text
            .iter()
            .position(|line| *line == "==")
            .expect("a heading ends with ==");
        out.push_str(&format!(
            "\n/*\n * {:-<94}\n",
            format!("{} ", title.to_uppercase())
        ));
        for line in fill(&text[1..end], WIDTH - 3) {
            out.push_str(format!(" * {line}").trim_end());
            out.push('\n');
        }
        out.push_str(" */\n\n");
        text.drain(..=end);
    }
    while text.last().is_some_and(|line| line.is_empty()) {
        text.pop();
    }
    match &fill(&text, WIDTH - 3 - indent.len())[..] {
        [] => {}
        [line] if indent.len() + line.len() <= WIDTH - 6 => {
            out.push_str(&format!("{indent}/* {line} */\n"));
        }
        filled => {
            out.push_str(&format!("{indent}/*\n"));
            for line in filled {
                out.push_str(format!("{indent} * {line}").trim_end());
                out.push('\n');
            }
            out.push_str(&format!("{indent} */\n"));
        }
    }
    out
}

#[test]
fn the_committed_header_is_what_the_source_generates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in [
        "types", "config", "client", "limiter", "verbs", "permit", "queue", "callback", "clock",
        "observe",
    ] {
        builder = builder.with_src(root.join(format!("src/ffi/{file}.rs")));
    }
    let mut raw = Vec::new();
    builder.generate().unwrap().write(&mut raw);
    let header = polish(&String::from_utf8(raw).unwrap());

    let wide = header.lines().find(|line| line.chars().count() > WIDTH);
    assert_eq!(wide, None, "a line over {WIDTH} columns");
    let committed = root.join("include/limiter.h");
    if std::env::var_os("LIMITER_WRITE_HEADER").is_some() {
        std::fs::write(&committed, &header).unwrap();
    }
    let found = std::fs::read_to_string(&committed).unwrap();
    assert!(
        found == header,
        "include/limiter.h is out of date: run `make header` and commit it"
    );
}
