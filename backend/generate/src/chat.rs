//! Chat templates: messages to the text that a model was trained on.
//!
//! A template is a program of the model's author. Fuel bounds its time and the memory of what it makes.

use super::error::GenerateError;
use super::read::{json_if_there, text};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Steps and pieces of 64 bytes of a template, at most: 320 MB.
const FUEL: u64 = 5_000_000;

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A message of this role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// A chat template and the texts of the tokens that it may name.
pub(crate) struct Template {
    source: String,
    file: PathBuf,
    begin: String,
    end: String,
}

impl Template {
    /// Reads the template of a folder: `chat_template.jinja`, or what `tokenizer_config.json` has. `None` if there is
    /// none.
    ///
    /// # Errors
    /// If the files cannot be read.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, GenerateError> {
        let (own, beside) = (folder.join("chat_template.jinja"), folder.join("tokenizer_config.json"));
        let config = json_if_there(&beside)?.unwrap_or_default();
        let token = |name: &str| {
            let token = &config[name];
            token.as_str().or_else(|| token["content"].as_str()).unwrap_or_default().to_owned()
        };
        let listed = || {
            let templates = config["chat_template"].as_array()?;
            let named = templates.iter().find(|template| template["name"] == "default");
            named.or(templates.first())?["template"].as_str()
        };
        let (source, file) = match config["chat_template"].as_str().or_else(listed) {
            _ if own.exists() => (text(&own)?, own),
            Some(source) => (source.to_owned(), beside),
            None => return Ok(None),
        };
        Ok(Some(Self { source, file, begin: token("bos_token"), end: token("eos_token") }))
    }

    /// The text of messages, up to where the model's answer begins.
    ///
    /// # Errors
    /// If the template is none, refuses the messages, or takes too long.
    pub(crate) fn render(&self, messages: &[Message]) -> Result<String, GenerateError> {
        self.rendered(messages).map_err(|error| {
            let what = match error.kind() {
                ErrorKind::OutOfFuel => "the chat template needs too many steps or too much memory".to_owned(),
                _ => format!("the chat template fails: {error}"),
            };
            GenerateError::file(&self.file, format!("{what}; give the prompt without --chat"))
        })
    }

    fn rendered(&self, messages: &[Message]) -> Result<String, Error> {
        let mut environment = Environment::new();
        environment.set_fuel(Some(FUEL));
        environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |what: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, what))
        });
        let template = environment.template_from_str(&self.source)?;
        let said = |message: &Message| context! { role => &*message.role, content => &*message.content };
        let messages: Vec<Value> = messages.iter().map(said).collect();
        let (begin, end) = (&*self.begin, &*self.end);
        template.render(context! { messages, add_generation_prompt => true, bos_token => begin, eos_token => end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(source: &str) -> Template {
        let [source, begin, end] = [source, "<s>", "</s>"].map(str::to_owned);
        Template { source, file: "tokenizer_config.json".into(), begin, end }
    }

    #[test]
    fn messages_become_the_text_that_the_template_says() {
        let usual = "{{ bos_token }}{% for message in messages %}\n<|{{ message['role'] }}|>{{ message.content.strip() }}{{ eos_token }}\
            {% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
        let said = [Message::new("system", "Be kind. "), Message::new("user", "Hello")];
        let text = template(usual).render(&said).expect("a template");
        assert_eq!(text, "<s><|system|>Be kind.</s><|user|>Hello</s><|assistant|>");
    }

    #[test]
    fn templates_without_end_sense_or_measure_are_refused_in_a_line() {
        let doubling = "{% set ns = namespace(x='a' * 1000) %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}";
        let long = "{% for i in range(9999) %}{% for j in range(9999) %}{% for k in range(9999) %}x{% endfor %}{% endfor %}{% endfor %}";
        let recursive = "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}";
        for (source, part) in [
            ("{{ 'x' * 100000000000 }}", "tokenizer_config.json"),
            (doubling, "too much memory"),
            (long, "too many steps"),
            (recursive, "fails"),
            ("{% for message in %}", "fails"),
            ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
            ("{{ messages[7].content.upper() }}", "fails"),
            ("{% include 'other' %}", "fails"),
        ] {
            let error = template(source).render(&[Message::new("user", "x")]).expect_err(source).to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{source}: {error}");
        }
    }
}
