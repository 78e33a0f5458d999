//! The source tree as text: files, and each line of Rust parted into code and comment.
//!
//! ```text
//! let a = "x // y"; // why      code  `let a = "";`      comment  `// why`
//! ```
//!
//! The contents of string literals are dropped, so a word in a string is never taken for code.
//! This is no parser: it knows comments, strings, character literals and lifetimes, nothing else.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One line of Rust, parted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// The code, without comments and without the contents of strings.
    pub code: String,
    /// The comments of the line, with their markers.
    pub comment: String,
}

/// One text file of the tree.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Path relative to the root of the repository, with `/`.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// The parted lines; empty unless the file is Rust.
    pub lines: Vec<Line>,
}

/// Something a check objects to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the root.
    pub path: String,
    /// The line, from 1; 0 when the whole file is meant.
    pub line: usize,
    /// What is wrong and what to do.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

impl SourceFile {
    /// A file from its path and text.
    #[must_use]
    pub fn new(path: &str, text: &str) -> Self {
        let lines = if is_ext(path, "rs") {
            part(text)
        } else {
            Vec::new()
        };
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            lines,
        }
    }

    /// True for a Rust file.
    #[must_use]
    pub fn is_rust(&self) -> bool {
        is_ext(&self.path, "rs")
    }

    /// A finding in this file; `index` counts lines from 0.
    #[must_use]
    pub fn finding(&self, index: usize, what: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line: index + 1,
            what: what.into(),
        }
    }

    /// A finding about the file as a whole.
    #[must_use]
    pub fn finding_whole(&self, what: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line: 0,
            what: what.into(),
        }
    }
}

/// True if `path` ends in `.ext`.
#[must_use]
pub fn is_ext(path: &str, ext: &str) -> bool {
    Path::new(path).extension().is_some_and(|e| e == ext)
}

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}

/// Every text file of the tree that is ours to keep tidy, sorted by path.
///
/// # Errors
///
/// When a file or folder cannot be read.
pub fn tree() -> io::Result<Vec<SourceFile>> {
    let root = root();
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if name == "target" || name == ".git" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if is_text(&name) {
                let text = fs::read_to_string(&path)?;
                let short = path.strip_prefix(&root).unwrap_or(&path);
                files.push(SourceFile::new(&short.to_string_lossy(), &text));
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn is_text(name: &str) -> bool {
    let exts = ["rs", "md", "toml", "sh", "c", "h", "py", "yml"];
    name == "run" || exts.iter().any(|ext| is_ext(name, ext))
}

/// True if `c` can be part of a name.
#[must_use]
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Byte positions at which `word` stands alone in `text`.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| {
            let before = text.get(..at).and_then(|s| s.chars().next_back());
            let after = text.get(at + word.len()..).and_then(|s| s.chars().next());
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
}

/// Parts Rust text into lines of code and comment.
#[must_use]
pub fn part(text: &str) -> Vec<Line> {
    let mut parter = Parter {
        chars: text.chars().collect(),
        at: 0,
        lines: Vec::new(),
        line: Line::default(),
    };
    while parter.step() {}
    if parter.line != Line::default() {
        parter.end_line();
    }
    parter.lines
}

struct Parter {
    chars: Vec<char>,
    at: usize,
    lines: Vec<Line>,
    line: Line,
}

impl Parter {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn end_line(&mut self) {
        self.lines.push(std::mem::take(&mut self.line));
    }

    /// Takes the next thing: a comment, a literal or one character. False at the end.
    fn step(&mut self) -> bool {
        let Some(c) = self.peek(0) else { return false };
        match (c, self.peek(1)) {
            ('\n', _) => {
                self.end_line();
                self.at += 1;
            }
            ('/', Some('/')) => self.line_comment(),
            ('/', Some('*')) => self.block_comment(),
            ('"', _) => self.string(),
            ('r', Some('"' | '#')) if self.raw_hashes().is_some() => self.raw_string(),
            ('\'', Some(next)) if next == '\\' || self.peek(2) == Some('\'') => self.character(),
            _ => {
                self.line.code.push(c);
                self.at += 1;
            }
        }
        true
    }

    fn line_comment(&mut self) {
        while let Some(c) = self.peek(0).filter(|&c| c != '\n') {
            self.line.comment.push(c);
            self.at += 1;
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_u32;
        while let Some(c) = self.peek(0) {
            let pair = (c, self.peek(1));
            let taken = match pair {
                ('/', Some('*')) => {
                    depth += 1;
                    2
                }
                ('*', Some('/')) => {
                    depth -= 1;
                    2
                }
                _ => 1,
            };
            for _ in 0..taken {
                self.take_into_comment();
            }
            if depth == 0 {
                break;
            }
        }
    }

    fn take_into_comment(&mut self) {
        match self.peek(0) {
            Some('\n') => self.end_line(),
            Some(c) => self.line.comment.push(c),
            None => {}
        }
        self.at += 1;
    }

    fn string(&mut self) {
        self.line.code.push_str("\"\"");
        self.at += 1;
        while let Some(c) = self.peek(0) {
            self.at += 1;
            match c {
                '"' => return,
                '\\' => {
                    if self.peek(0) == Some('\n') {
                        self.end_line();
                    }
                    self.at += 1;
                }
                '\n' => self.end_line(),
                _ => {}
            }
        }
    }

    /// The number of `#` of a raw string that starts here; `None` if none starts here.
    fn raw_hashes(&self) -> Option<usize> {
        let mut before = self.line.code.chars().rev();
        let joined = match before.next() {
            Some('b' | 'c') => before.next().is_some_and(is_word),
            Some(c) => is_word(c),
            None => false,
        };
        let hashes = (1..).take_while(|&n| self.peek(n) == Some('#')).count();
        (!joined && self.peek(1 + hashes) == Some('"')).then_some(hashes)
    }

    fn raw_string(&mut self) {
        let hashes = self.raw_hashes().unwrap_or(0);
        self.line.code.push_str("\"\"");
        self.at += 2 + hashes;
        while let Some(c) = self.peek(0) {
            self.at += 1;
            if c == '\n' {
                self.end_line();
            }
            if c == '"' && (0..hashes).all(|n| self.peek(n) == Some('#')) {
                self.at += hashes;
                return;
            }
        }
    }

    fn character(&mut self) {
        self.line.code.push_str("' '");
        self.at += if self.peek(1) == Some('\\') { 3 } else { 2 };
        while self.peek(0).is_some_and(|c| c != '\'' && c != '\n') {
            self.at += 1;
        }
        self.at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Vec<String> {
        part(text).into_iter().map(|line| line.code).collect()
    }

    #[test]
    fn strings_and_comments_are_no_code() {
        assert_eq!(code("a(\"unsafe // x\"); // unsafe"), ["a(\"\"); "]);
        assert_eq!(code("a /* b /* c */ d\n e */ f"), ["a ", " f"]);
        assert_eq!(code("r#\"un\"safe\n\"# + br\"x\""), ["\"\"", " + b\"\""]);
        assert_eq!(code("let r#type = \"\\\"\"; x"), ["let r#type = \"\"; x"]);
        assert_eq!(code("\"one \\\n two\"\nend"), ["\"\"", "", "end"]);
    }

    #[test]
    fn quotes_and_lifetimes_differ() {
        assert_eq!(
            code("f::<'a>('\"', '\\'', b'x')"),
            ["f::<'a>(' ', ' ', b' ')"]
        );
    }

    #[test]
    fn words_stand_alone() {
        assert_eq!(
            words("unsafe_code unsafe", "unsafe").collect::<Vec<_>>(),
            [12]
        );
    }
}
