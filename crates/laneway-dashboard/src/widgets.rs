//! Small parts of pages that write their own HTML: times, states, buttons.

use std::fmt::{self, Display};

use askama::filters::HtmlSafe;

use crate::context::Context;
use crate::format::Moment;

/// Text with the characters of HTML escaped.
pub struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

impl Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (exact, ago) = (Escaped(&self.exact), Escaped(&self.ago));
        write!(f, "<time datetime=\"{exact}\" title=\"{exact}\">{ago}</time>")
    }
}

impl HtmlSafe for Moment {}

/// A state with its color.
pub struct State(pub String);

impl State {
    /// The state of this name.
    pub fn new(name: &str) -> State {
        State(name.to_owned())
    }
}

impl Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class: String = self.0.chars().filter(|c| c.is_ascii_alphabetic() || *c == '_').collect();
        write!(f, "<span class=\"state s-{class}\">{}</span>", Escaped(&self.0.replace('_', " ")))
    }
}

impl HtmlSafe for State {}

/// A button that changes something.
pub struct Button {
    action: String,
    text: &'static str,
    class: &'static str,
    question: Option<String>,
    fields: Vec<(&'static str, String)>,
    /// A field that the reader fills in: its name, what it is, and an example.
    input: Option<(&'static str, &'static str, &'static str)>,
    csrf: String,
}

impl Button {
    /// A button that sends a form to a path of the dashboard.
    pub fn new(context: &Context, path: &str, text: &'static str) -> Button {
        Button {
            action: format!("{}{path}", context.root),
            text,
            class: "",
            question: None,
            fields: Vec::new(),
            input: None,
            csrf: context.csrf.clone(),
        }
    }

    /// The question that the reader answers first, where scripts run.
    pub fn ask(mut self, question: impl Into<String>) -> Button {
        self.question = Some(question.into());
        self
    }

    /// A button whose effect cannot be taken back.
    pub fn danger(mut self) -> Button {
        self.class = "danger";
        self
    }

    /// The button that most readers want.
    pub fn primary(mut self) -> Button {
        self.class = "primary";
        self
    }

    /// The page that follows.
    pub fn back(self, to: impl Into<String>) -> Button {
        self.with("back", to)
    }

    /// A field that the reader fills in. `label` says what it is, `example` is shown while it is empty.
    pub fn input(mut self, name: &'static str, label: &'static str, example: &'static str) -> Button {
        self.input = Some((name, label, example));
        self
    }

    /// A further field of the form.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Button {
        self.fields.push((name, value.into()));
        self
    }
}

impl Display for Button {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Button { action, text, class, question, fields, input, csrf } = self;
        let kind = if input.is_some() { "act with-field" } else { "act" };
        write!(f, "<form class=\"{kind}\" method=\"post\" action=\"{}\"", Escaped(action))?;
        if let Some(question) = question {
            write!(f, " data-ask=\"{}\"", Escaped(question))?;
        }
        write!(f, "><input type=\"hidden\" name=\"csrf\" value=\"{csrf}\">")?;
        for (name, value) in fields {
            write!(f, "<input type=\"hidden\" name=\"{name}\" value=\"{}\">", Escaped(value))?;
        }
        if let Some((name, label, example)) = input {
            write!(
                f,
                "<input name=\"{name}\" aria-label=\"{label}\" placeholder=\"{example}\" required autocomplete=\"off\" \
                 spellcheck=\"false\">"
            )?;
        }
        write!(f, "<button class=\"{class}\">{text}</button></form>")
    }
}

impl HtmlSafe for Button {}

/// A bar that shows a part of a whole.
pub struct Meter {
    /// The part, in percent.
    pub percent: u64,
    /// What it says.
    pub text: String,
}

impl Meter {
    /// The bar for a part of a limit.
    pub fn new(part: u64, whole: u64) -> Meter {
        Meter { percent: crate::format::percent(part, whole), text: format!("{part} of {whole}") }
    }
}

impl Display for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (percent, text) = (self.percent, Escaped(&self.text));
        let class = if percent >= 90 { "full" } else { "" };
        // SVG takes its width as an attribute; a style attribute would need a weaker content policy.
        write!(
            f,
            "<svg class=\"meter {class}\" viewBox=\"0 0 100 6\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{text}\">\
             <title>{text}</title><rect class=\"track\" width=\"100\" height=\"6\"/>\
             <rect class=\"fill\" width=\"{percent}\" height=\"6\"/></svg>"
        )
    }
}

impl HtmlSafe for Meter {}

/// HTML that this crate has written.
pub struct Svg(pub String);

impl Display for Svg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Svg {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_stay_text() {
        let hostile = "<img src=x onerror=\"a\">'&";
        assert_eq!(Escaped(hostile).to_string(), "&lt;img src=x onerror=&quot;a&quot;&gt;&#39;&amp;");
        assert!(!State::new(hostile).to_string().contains("<img"));
        assert!(!Moment::new(hostile, 0).to_string().contains("<img"));
    }
}
