//! The public API of each published crate as a text, so that a change of it is seen in review.
//!
//! Read from the pages that rustdoc has just written: each public item with its declaration, its own methods and the
//! traits that it implements. The toolchain is pinned, so the pages of one commit are the same everywhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{Violations, packages::Package};

/// Names that two public types share on purpose, with the reason.
const SHARED_NAMES: [(&str, &str); 1] =
    [("Namespace", "of tables in a SQL store, and of one case in the suite: no program uses both")];

/// The folder of the texts, one file for each crate.
const FOLDER: &str = "docs/public-api";
/// The only line of an item that another crate defines.
const RE_EXPORTED: &str = "re-exported";
/// Lines of a difference that are shown for each crate.
const MAX_SHOWN: usize = 20;

/// Differences between the texts and the documentation in `target/doc`.
pub(super) fn changes(workspace: &Path, target: &Path, packages: &[Package]) -> Result<Violations> {
    let mut found = Vec::new();
    for (file, text) in texts(target, packages)? {
        let recorded = fs::read_to_string(workspace.join(&file)).unwrap_or_default();
        let name = file.display();
        let mut lines = difference(&recorded, &text);
        if lines.len() > MAX_SHOWN {
            let more = lines.len() - MAX_SHOWN;
            lines.truncate(MAX_SHOWN);
            lines.push(format!("and {more} more lines"));
        }
        found.extend(lines.into_iter().map(|line| format!("{name}: {line}")));
    }
    Ok(found)
}

/// Writes the texts anew.
pub(super) fn write(workspace: &Path, target: &Path, packages: &[Package]) -> Result<()> {
    fs::create_dir_all(workspace.join(FOLDER))?;
    for (file, text) in texts(target, packages)? {
        fs::write(workspace.join(file), text)?;
    }
    Ok(())
}

/// Names that several public types have: a reader cannot tell which one is meant.
pub(super) fn homonyms(target: &Path, packages: &[Package]) -> Result<Violations> {
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, text) in texts(target, packages)? {
        let lines: Vec<_> = text.lines().collect();
        for item in lines.windows(2).filter(|item| !item[0].starts_with(' ') && item[1].trim() != RE_EXPORTED)
        {
            let (path, name) = item[0].rsplit_once('.').unwrap_or_default();
            if ["struct", "enum", "trait"].iter().any(|kind| path.ends_with(kind)) {
                types.entry(name.to_owned()).or_default().push(item[0].to_owned());
            }
        }
    }
    types.retain(|name, paths| paths.len() > 1 && SHARED_NAMES.iter().all(|(shared, _)| shared != name));
    Ok(types.into_values().map(|paths| paths.join(" and ")).collect())
}

fn texts(target: &Path, packages: &[Package]) -> Result<Vec<(PathBuf, String)>> {
    let mut texts = Vec::new();
    for package in packages.iter().filter(|package| package.has_library) {
        let name = package.name.replace('-', "_");
        let pages = target.join("doc").join(&name);
        let text = of_crate(&name, &pages).with_context(|| format!("the documentation of {name}"))?;
        texts.push((Path::new(FOLDER).join(format!("{}.txt", package.name)), text));
    }
    Ok(texts)
}

/// The text of one crate, from its list of all items.
fn of_crate(name: &str, pages: &Path) -> Result<String> {
    let list = fs::read_to_string(pages.join("all.html")).context("there is no list of its items")?;
    let (_, list) = list.split_once(r#"class="all-items""#).context("its list of items is empty")?;
    let mut items: Vec<&str> = between(list, "<a href=\"", "\"").collect();
    items.retain(|page| page.ends_with(".html"));
    items.sort_unstable();
    let mut text = String::new();
    for page in items {
        let html = fs::read_to_string(pages.join(page)).with_context(|| page.to_owned())?;
        text += &of_item(name, page, &html);
    }
    Ok(text)
}

/// The text of one item: its path, and below it what can be used of it.
fn of_item(name: &str, page: &str, html: &str) -> String {
    let path = page.trim_end_matches(".html").replace('/', "::");
    let mut text = format!("{name}::{path}\n");
    let mut line = |depth: usize, code: &str| {
        for part in code.lines() {
            text += &format!("{}{part}\n", "    ".repeat(depth));
        }
    };
    let own_source = format!("src/{name}/");
    let source = between(html, "<a class=\"src\" href=\"", "\"").next().unwrap_or_default();
    if !source.contains(&own_source) {
        line(1, RE_EXPORTED);
        return text;
    }
    for declaration in between(html, "<pre class=\"rust item-decl\"><code>", "</code></pre>") {
        // Long declarations are folded, behind a line that says how much.
        let (folded, open) = ("<summary class=\"hideme\">", "</summary>");
        let shown: String = declaration
            .split(folded)
            .enumerate()
            .map(
                |(place, part)| {
                    if place == 0 { part } else { part.split_once(open).map_or(part, |(_, code)| code) }
                },
            )
            .collect();
        line(1, &plain(&shown));
    }
    let mut traits = Vec::new();
    for section in html.split("<h2 id=\"").skip(1) {
        let headers = |begin, end| between(section, begin, end).map(plain);
        match section.split('"').next() {
            Some("implementations") => {
                headers("<h4 class=\"code-header\">", "</h4>").for_each(|method| line(1, &method));
            }
            Some("trait-implementations") => traits.extend(headers("<h3 class=\"code-header\">", "</h3>")),
            _ => {}
        }
    }
    traits.sort_unstable();
    traits.iter().for_each(|implementation| line(1, implementation));
    text
}

/// Every text between two marks.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> impl Iterator<Item = &'a str> {
    text.split(begin).skip(1).filter_map(move |rest| rest.split(end).next()).collect::<Vec<_>>().into_iter()
}

/// HTML without tags and entities.
fn plain(html: &str) -> String {
    let mut text = String::new();
    for part in html.split('<') {
        // Before the first tag there is no `>` of a tag: those of the code are entities.
        text += part.split_once('>').map_or(part, |(_, code)| code);
    }
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&amp;", "&")]
        .into_iter()
        .fold(text, |text, (entity, code)| text.replace(entity, code))
}

/// Lines that only one of two texts has, with the item that they belong to.
fn difference(recorded: &str, present: &str) -> Violations {
    let (before, after) = (with_items(recorded), with_items(present));
    let gone = before.iter().filter(|line| !after.contains(*line)).map(|line| format!("- {line}"));
    let new = after.iter().filter(|line| !before.contains(*line)).map(|line| format!("+ {line}"));
    let lines: Violations = gone.chain(new).collect();
    match lines.is_empty() && recorded != present {
        true => vec!["the order of its lines has changed".to_owned()],
        false => lines,
    }
}

/// Each line, after the item that it belongs to.
fn with_items(text: &str) -> BTreeSet<String> {
    let mut item = "";
    let mut with_item = |line| match str::starts_with(line, ' ') {
        true => format!("{item}: {}", line.trim()),
        false => {
            item = line;
            line.to_owned()
        }
    };
    text.lines().map(&mut with_item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r##"<a class="src" href="../src/shop/till.rs.html#1">Source</a>
        <pre class="rust item-decl"><code>pub struct Till&lt;T&gt; {
    pub open: <a href="x">bool</a>,
}</code></pre>
        <h2 id="fields"><h3 class="code-header">open: bool</h3>
        <h2 id="implementations"><h3 class="code-header">impl Till</h3>
        <h4 class="code-header">pub fn <a class="fn">close</a>(&amp;self) -&gt; <a>u64</a></h4>
        <h2 id="trait-implementations"><h3 class="code-header">impl Clone for Till</h3>
        <h4 class="code-header">fn clone(&amp;self) -&gt; Self</h4>
        <h2 id="blanket-implementations"><h3 class="code-header">impl&lt;T&gt; From&lt;T&gt; for T</h3>"##;

    #[test]
    fn an_item_is_its_declaration_its_methods_and_its_traits() {
        let expected = "shop::front::struct.Till\n    pub struct Till<T> {\n        pub open: bool,\n    }\n    \
                        pub fn close(&self) -> u64\n    impl Clone for Till\n";
        assert_eq!(of_item("shop", "front/struct.Till.html", PAGE), expected);
    }

    #[test]
    fn an_item_of_another_crate_is_named_only() {
        let page = PAGE.replace("src/shop/", "src/ratchet_api/");
        assert_eq!(of_item("shop", "struct.Till.html", &page), "shop::struct.Till\n    re-exported\n");
    }

    #[test]
    fn a_changed_signature_is_one_line_gone_and_one_new() {
        let (before, after) = ("a::B\n    fn c()\n    fn d()\n", "a::B\n    fn c(u8)\n    fn d()\n");
        assert_eq!(difference(before, after), ["- a::B: fn c()", "+ a::B: fn c(u8)"]);
        assert_eq!(difference(before, before), [""; 0]);
    }
}
