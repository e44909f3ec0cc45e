//! `docs`: `docs/options.md`, the table of every option, written from the configuration types.
//!
//! The types are the one place where an option, its default and its meaning are stated: the fields of each
//! `pub struct ...Config` with their doc comments, and its `impl Default`.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::args;
use crate::source::{self, Line};
use crate::workspace::Workspace;

const FILE: &str = "docs/options.md";

const HEAD: &str = "# Options\n\n\
    Written by `cargo xtask docs` from the configuration types; edit their doc comments instead.\n";

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    match args::flag(args, &["--check"])? {
        Some(_) => check(workspace),
        None => {
            let text = render(&configs(workspace)?);
            fs::write(workspace.root().join(FILE), text).with_context(|| format!("writing {FILE}"))
        }
    }
}

/// Fails when the file is not what the types say.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let configs = configs(workspace)?;
    if workspace.read(FILE).unwrap_or_default() != render(&configs) {
        bail!("{FILE} differs from the configuration types; `cargo xtask docs` writes it");
    }
    println!("docs: the options of {} types are in {FILE}", configs.len());
    Ok(())
}

/// One configuration type.
#[derive(Debug, PartialEq, Eq)]
struct Config {
    krate: String,
    name: String,
    options: Vec<Field>,
}

#[derive(Debug, PartialEq, Eq)]
struct Field {
    name: String,
    kind: String,
    /// The expression in `impl Default`, with constants replaced by their values.
    default: String,
    about: String,
}

fn configs(workspace: &Workspace) -> Result<Vec<Config>> {
    let mut configs = Vec::new();
    for krate in workspace.crates()? {
        let mut files = Vec::new();
        for file in workspace.files(&format!("crates/{krate}/src"), "rs")? {
            if !source::is_test_file(&file) {
                files.push(source::scan(&workspace.read(&file)?));
            }
        }
        let constants = files.iter().flat_map(|lines| constants(lines)).collect();
        for lines in &files {
            for (name, mut options) in structs(lines) {
                let defaults = defaults(lines, &name);
                for option in &mut options {
                    if let Some(value) = defaults.get(&option.name) {
                        option.default = readable(value, &constants);
                    }
                }
                configs.push(Config { krate: krate.clone(), name, options });
            }
        }
    }
    configs.sort_by(|a, b| (&a.krate, &a.name).cmp(&(&b.krate, &b.name)));
    Ok(configs)
}

fn render(configs: &[Config]) -> String {
    let mut text = HEAD.to_owned();
    for config in configs {
        text.push_str(&format!(
            "\n## `{}::{}`\n\n| option | type | default | meaning |\n| --- | --- | --- | --- |\n",
            config.krate.replace('-', "_"),
            config.name
        ));
        for option in &config.options {
            let about = option.about.replace('|', "\\|");
            text.push_str(&format!(
                "| `{}` | `{}` | {} | {about} |\n",
                option.name, option.kind, option.default
            ));
        }
    }
    text
}

/// The lines from the first that begins with `head` to the end of its braces.
fn block<'a>(lines: &'a [Line], head: &str) -> Option<&'a [Line]> {
    let start = lines.iter().position(|line| !line.test && line.code.trim_start().starts_with(head))?;
    let mut depth = 0_usize;
    for (offset, line) in lines[start..].iter().enumerate() {
        depth += line.code.matches('{').count();
        let closing = line.code.matches('}').count();
        if closing > 0 && depth <= closing {
            return Some(&lines[start..=start + offset]);
        }
        depth -= closing;
    }
    None
}

/// The public `...Config` structs of a file with their fields, whose defaults are not known yet.
fn structs(lines: &[Line]) -> Vec<(String, Vec<Field>)> {
    let mut found = Vec::new();
    for line in lines.iter().filter(|line| !line.test) {
        let Some(rest) = line.code.strip_prefix("pub struct ") else { continue };
        let name = source::words(rest).next().unwrap_or_default();
        if !name.ends_with("Config") || !line.code.trim_end().ends_with('{') {
            continue;
        }
        let head = format!("pub struct {name} ");
        let Some(body) = block(lines, &head) else { continue };
        // What has no defaults is no set of options.
        if block(lines, &format!("impl Default for {name} ")).is_none() {
            continue;
        }
        let mut options = Vec::new();
        let mut about = String::new();
        for line in &body[1..] {
            if let Some(doc) = line.comment.strip_prefix("///") {
                about.push_str(doc);
            }
            let code = line.code.trim().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
            if let Some((option, kind)) = code.split_once(": ").filter(|_| !code.starts_with('#')) {
                let kind = kind.trim_end_matches(',').to_owned();
                options.push(Field {
                    name: option.to_owned(),
                    kind,
                    default: "required".to_owned(),
                    about: first_sentence(&std::mem::take(&mut about)),
                });
            }
        }
        found.push((name.to_owned(), options));
    }
    found
}

fn first_sentence(text: &str) -> String {
    let text = text.trim();
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    // A link between items leads nowhere outside the crate's documentation.
    text[..end].replace("[`", "`").replace("`]", "`")
}

/// The fields that `impl Default for name` sets, each with its expression.
fn defaults(lines: &[Line], name: &str) -> BTreeMap<String, String> {
    let mut defaults = BTreeMap::new();
    for line in block(lines, &format!("impl Default for {name} ")).unwrap_or_default() {
        let code = line.code.trim();
        if let Some((field, value)) = code.split_once(": ").filter(|_| code.ends_with(',')) {
            defaults.insert(field.to_owned(), value.trim_end_matches(',').to_owned());
        }
    }
    defaults
}

/// The constants of a file that fit on one line, each with its value.
fn constants(lines: &[Line]) -> BTreeMap<String, String> {
    let mut constants = BTreeMap::new();
    for line in lines {
        let code = line.code.trim();
        let Some((head, value)) = code.split_once(" = ") else { continue };
        let Some((_, item)) = head.split_once("const ") else { continue };
        if let (Some(name), Some(value)) = (source::words(item).next(), value.strip_suffix(';')) {
            constants.insert(name.to_owned(), value.to_owned());
        }
    }
    constants
}

/// A default as a person writes it: constants resolved, durations with their unit.
fn readable(value: &str, constants: &BTreeMap<String, String>) -> String {
    let last = value.rsplit("::").next().unwrap_or(value);
    if let Some(constant) = constants.get(last).filter(|constant| *constant != value) {
        return readable(constant, constants);
    }
    let inner = |head: &str| value.strip_prefix(head)?.strip_suffix(')').map(str::to_owned);
    for (head, unit) in [("from_millis(", "ms"), ("from_secs(", "s"), ("from_mins(", "min")] {
        if let Some(count) = inner(&format!("Duration::{head}")) {
            return format!("{} {unit}", count.replace('_', ""));
        }
    }
    if let Some(inner) = inner("Some(") {
        return readable(&inner, constants);
    }
    match value {
        "None" => "none".to_owned(),
        _ if value.chars().all(|c| c.is_ascii_digit() || c == '_') => value.replace('_', ""),
        _ => format!("`{value}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "const WAIT: Duration = Duration::from_millis(1_500);\n\
        /// A type.\npub struct AConfig {\n    /// How long. It waits\n    /// more.\n    pub wait: Duration,\n\
        /// How many | much.\n    #[serde(default)]\n    pub(crate) size: usize,\n    /// Whose.\n    name: Option<String>,\n}\n\n\
        impl Default for AConfig {\n    fn default() -> Self {\n        Self {\n            wait: WAIT,\n\
        size: 1_000,\n        }\n    }\n}\n\n#[cfg(test)]\nmod tests {\npub struct TConfig {\n}\n}\n";

    #[test]
    fn options_are_read_from_the_type_and_its_default() {
        let lines = source::scan(SOURCE);
        let found = structs(&lines);
        assert_eq!(found.len(), 1);
        let (name, options) = &found[0];
        assert_eq!(name, "AConfig");
        let option = |name: &str, kind: &str, about: &str| Field {
            name: name.to_owned(),
            kind: kind.to_owned(),
            default: "required".to_owned(),
            about: about.to_owned(),
        };
        assert_eq!(
            *options,
            [
                option("wait", "Duration", "How long."),
                option("size", "usize", "How many | much."),
                option("name", "Option<String>", "Whose."),
            ]
        );
        let defaults = defaults(&lines, "AConfig");
        let constants = constants(&lines);
        assert_eq!(readable(&defaults["wait"], &constants), "1500 ms");
        assert_eq!(readable(&defaults["size"], &constants), "1000");
        assert!(!defaults.contains_key("name"));
    }

    #[test]
    fn values_are_readable() {
        let constants = [("N".to_owned(), "Some(Duration::from_secs(60))".to_owned())].into();
        assert_eq!(readable("Self::N", &constants), "60 s");
        assert_eq!(readable("None", &constants), "none");
        assert_eq!(readable("Policy::RetryForever", &constants), "`Policy::RetryForever`");
    }

    #[test]
    fn the_table_escapes_its_bars() {
        let config = Config {
            krate: "kinesis-a".to_owned(),
            name: "AConfig".to_owned(),
            options: vec![Field {
                name: "b".to_owned(),
                kind: "u8".to_owned(),
                default: "1".to_owned(),
                about: "c | d".to_owned(),
            }],
        };
        let text = render(&[config]);
        assert!(text.ends_with("## `kinesis_a::AConfig`\n\n| option | type | default | meaning |\n| --- | --- | --- | --- |\n| `b` | `u8` | 1 | c \\| d |\n"));
    }

    /// S-239: the published table of options and defaults is what the code says.
    #[test]
    fn the_options_table_is_current() {
        check(&Workspace::here().unwrap()).unwrap();
    }
}
