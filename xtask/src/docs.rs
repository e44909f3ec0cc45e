//! `docs`: `docs/options.md`, the table of every option, written from the configuration types.
//!
//! The types are the one place where an option, its default and its meaning are stated: the fields of each
//! `pub struct ...Config` with their doc comments, and its `impl Default`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::args;
use crate::source::{self, Line};
use crate::workspace::Workspace;

const FILE: &str = "docs/options.md";

const MIB: u64 = 1024 * 1024;

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

#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    name: String,
    kind: String,
    /// The expression in `impl Default`, with constants replaced by their values.
    default: String,
    about: String,
}

fn configs(workspace: &Workspace) -> Result<Vec<Config>> {
    let mut crates = Vec::new();
    for krate in workspace.crates()? {
        let mut files = Vec::new();
        for file in workspace.files(&format!("crates/{krate}/src"), "rs")? {
            if !source::is_test_file(&file) {
                files.push(source::scan(&workspace.read(&file)?));
            }
        }
        crates.push((krate, files));
    }
    let everywhere =
        unambiguous(crates.iter().flat_map(|(_, files)| files).flat_map(|lines| constants(lines)));
    let mut configs = Vec::new();
    for (krate, files) in &crates {
        let mut known = everywhere.clone();
        known.extend(files.iter().flat_map(|lines| constants(lines)));
        for lines in files {
            for (name, mut options) in structs(lines) {
                fill(&mut options, &defaults(lines, &name), &known)
                    .with_context(|| format!("{krate}: {name}"))?;
                configs.push(Config { krate: krate.clone(), name, options });
            }
        }
    }
    configs.sort_by(|a, b| (&a.krate, &a.name).cmp(&(&b.krate, &b.name)));
    Ok(configs)
}

/// Gives each option its default.
fn fill(
    options: &mut [Field],
    defaults: &BTreeMap<String, String>,
    known: &BTreeMap<String, String>,
) -> Result<()> {
    for option in options {
        let value = defaults.get(&option.name);
        let value = value.with_context(|| format!("no default of `{}` in `impl Default`", option.name))?;
        option.default = readable(value, known);
    }
    Ok(())
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
                    default: String::new(),
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
    let mut plain = String::new();
    let mut rest = &text[..end];
    while let Some((before, link)) = rest.split_once("[`") {
        let (name, after) = link.split_once("`]").unwrap_or((link, ""));
        plain.push_str(&format!("{before}`{name}`"));
        rest = after
            .strip_prefix('(')
            .and_then(|target| target.split_once(')'))
            .map_or(after, |(_, after)| after);
    }
    plain + rest
}

/// The fields that `impl Default for name` sets, each with its expression.
fn defaults(lines: &[Line], name: &str) -> BTreeMap<String, String> {
    let body = block(lines, &format!("impl Default for {name} ")).unwrap_or_default();
    let code: Vec<_> = body.iter().map(|line| line.code.trim()).collect();
    let code = code.join(" ").replace("( ", "(");
    let literal = code.split_once("fn default() -> Self {").and_then(|(_, body)| body.split_once("Self {"));
    let mut defaults = BTreeMap::new();
    let (mut depth, mut start) = (0_usize, 0);
    let (_, fields) = literal.unwrap_or_default();
    for (at, sign) in fields.char_indices() {
        match sign {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                if let Some((field, value)) = fields[start..at].split_once(": ") {
                    // An attribute may come before it.
                    let name = field.rsplit(' ').next().unwrap_or(field);
                    defaults.insert(name.to_owned(), value.trim().to_owned());
                }
                if sign == '}' {
                    break;
                }
                start = at + 1;
            }
            _ => {}
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

/// The constants whose name has one value only: which of two is meant, only the compiler knows.
fn unambiguous(constants: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, value) in constants {
        values.entry(name).or_default().insert(value);
    }
    values.retain(|_, values| values.len() == 1);
    values
        .into_iter()
        .flat_map(|(name, values)| values.into_iter().map(move |value| (name.clone(), value)))
        .collect()
}

/// A default as a person writes it: constants resolved, durations and sizes with their unit.
fn readable(value: &str, constants: &BTreeMap<String, String>) -> String {
    // Before any look-up: types of ours may have a constant of that name as well.
    if value == "Duration::ZERO" {
        return "0".to_owned();
    }
    if let Some(constant) = resolved(value, constants) {
        return readable(constant, constants);
    }
    let inner = |head: &str| value.strip_prefix(head)?.strip_suffix(')');
    for (head, unit) in [("from_millis(", "ms"), ("from_secs(", "s"), ("from_mins(", "min")] {
        let count = inner(&format!("Duration::{head}")).and_then(|count| number(count, constants));
        if let Some(count) = count {
            return format!("{count} {unit}");
        }
    }
    if let Some(inner) = inner("Some(") {
        return readable(inner, constants);
    }
    match (value, number(value, constants)) {
        ("None", _) => "none".to_owned(),
        // Written as a product, it is a size.
        (_, Some(bytes)) if value.contains('*') && bytes % MIB == 0 => format!("{} MiB", bytes / MIB),
        (_, Some(number)) => number.to_string(),
        _ => format!("`{value}`"),
    }
}

/// The value of the constant that the expression names.
fn resolved<'a>(value: &str, constants: &'a BTreeMap<String, String>) -> Option<&'a str> {
    fn last(path: &str) -> &str {
        path.rsplit("::").next().unwrap_or(path)
    }
    let constant = constants.get(last(value))?;
    // A constant that is another's value under the same name would be looked up for ever.
    (last(constant) != last(value)).then_some(constant)
}

/// The value of a number, a constant, a product or a quotient of these.
fn number(expression: &str, constants: &BTreeMap<String, String>) -> Option<u64> {
    if let Some(factors) = expression.contains(" * ").then(|| expression.split(" * ")) {
        return factors.map(|factor| number(factor, constants)).product();
    }
    if let Some((above, below)) = expression.split_once(" / ") {
        return number(above, constants)?.checked_div(number(below, constants)?);
    }
    let plain = expression.split(" as ").next().unwrap_or(expression);
    match resolved(plain, constants) {
        Some(constant) => number(constant, constants),
        None => plain.replace('_', "").parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "const WAIT: Duration = Duration::from_millis(1_500);\n\
        /// A type.\npub struct AConfig {\n    /// How long. It waits\n    /// more.\n    pub wait: Duration,\n\
        /// How many | much.\n    #[serde(default)]\n    pub(crate) size: usize,\n    /// Whose.\n    name: Option<String>,\n}\n\n\
        impl Default for AConfig {\n    fn default() -> Self {\n        Self {\n            wait: WAIT,\n\
        size: 1_000,\n            name: None,\n        }\n    }\n}\n\n#[cfg(test)]\nmod tests {\npub struct TConfig {\n}\n}\n";

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
            default: String::new(),
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
        assert_eq!(readable(&defaults["name"], &constants), "none");
        let mut options = options.to_vec();
        fill(&mut options, &defaults, &constants).unwrap();
        assert_eq!(options[1].default, "1000");
    }

    #[test]
    fn defaults_are_read_from_one_line_and_from_several() {
        let literals = [
            "Self { wait: Duration::from_secs(5), size: f(1, 2), name: None }",
            "let _ = 1;\nSelf {\nwait: Duration::from_secs(5),\nsize: f(\n1, 2),\n#[cfg(unix)]\nname: None,\n}",
        ];
        for literal in literals {
            let text = format!("impl Default for AConfig {{\nfn default() -> Self {{\n{literal}\n}}\n}}\n");
            let defaults = defaults(&source::scan(&text), "AConfig");
            assert_eq!(
                defaults.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>(),
                ["name None", "size f(1, 2)", "wait Duration::from_secs(5)"]
            );
        }
    }

    #[test]
    fn an_option_without_a_default_fails() {
        let text = SOURCE.replace("size: 1_000,\n", "");
        let lines = source::scan(&text);
        let (name, mut options) = structs(&lines).remove(0);
        let error = fill(&mut options, &defaults(&lines, &name), &BTreeMap::new()).unwrap_err();
        assert_eq!(error.to_string(), "no default of `size` in `impl Default`");
    }

    #[test]
    fn values_are_readable() {
        let constant = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let constants = [
            constant("N", "Some(Duration::from_secs(60))"),
            constant("READS", "5"),
            constant("SAME", "other::SAME"),
            constant("ZERO", "Self(Repr::Packed([0; 4]))"),
        ]
        .into();
        assert_eq!(readable("Duration::from_millis(1000 / core::READS as u64)", &constants), "200 ms");
        assert_eq!(readable("Self::SAME", &constants), "`Self::SAME`");
        assert_eq!(readable("Self::N", &constants), "60 s");
        assert_eq!(readable("None", &constants), "none");
        assert_eq!(readable("Duration::ZERO", &constants), "0");
        assert_eq!(readable("10 * 1024 * 1024", &constants), "10 MiB");
        assert_eq!(readable("3 * 1000", &constants), "3000");
        assert_eq!(readable("Policy::RetryForever", &constants), "`Policy::RetryForever`");
    }

    #[test]
    fn a_name_with_two_values_is_left_as_it_is() {
        let constant = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let all = [constant("A", "1"), constant("B", "2"), constant("A", "3"), constant("B", "2")];
        assert_eq!(unambiguous(all.into_iter()), [constant("B", "2")].into());
    }

    #[test]
    fn links_between_items_become_their_names() {
        assert_eq!(first_sentence(" A [`B`](c::B), [`D`] or e. More."), "A `B`, `D` or e.");
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
