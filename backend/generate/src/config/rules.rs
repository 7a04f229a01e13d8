//! Forced and forbidden tokens, as `generation_config.json` says them.

use super::super::error::GenerateError;
use super::super::rules::Rules;
use super::Fields;
use serde_json::Value;

/// Forced tokens at most: real configurations have four.
const MOST_FORCED: usize = 64;

impl Fields<'_> {
    /// Returns the rules. Only a decoder behind an encoder begins with forced tokens.
    pub(super) fn rules(self, has_encoder: bool) -> Result<Rules, GenerateError> {
        let mut rules = Rules {
            suppressed: [self.tokens("suppress_tokens")?, self.bad_words()?].concat(),
            suppressed_first: self.tokens("begin_suppress_tokens")?,
            last: self.tokens("forced_eos_token_id")?.first().copied(),
            ..Rules::default()
        };
        if self.value["return_timestamps"] == true {
            return Err(self.wrong("return_timestamps", "false: timestamps are not supported"));
        }
        if has_encoder {
            rules.forced = self.forced()?;
            rules.languages = self.at("lang_to_id").numbers()?;
        }
        Ok(rules)
    }

    /// Returns the tokens from position 1 on that the configuration forces or leaves open.
    fn forced(self) -> Result<Vec<Option<u32>>, GenerateError> {
        let mut forced = self.listed()?;
        // Configurations of later versions name languages and tasks, which count more.
        let is_named = ["language", "task"].iter().any(|name| self.value[*name].is_string());
        if is_named && self.value["lang_to_id"].is_object() {
            forced.clear();
        }
        if forced.is_empty() {
            forced.extend(self.tokens("forced_bos_token_id")?.first().copied().map(Some));
        }
        if forced.is_empty() && self.value["lang_to_id"].is_object() {
            forced.push(self.language()?);
            let (task, known) = (self.value["task"].as_str(), self.at("task_to_id"));
            if task.is_some_and(|task| known.value[task].is_null()) {
                return Err(self.wrong("task", "a key of `task_to_id`"));
            }
            forced.extend(known.tokens(task.unwrap_or("transcribe"))?.first().copied().map(Some));
        }
        let silent = self.tokens("no_timestamps_token_id")?.first().copied().map(Some);
        forced.extend(silent.filter(|token| !forced.contains(token)));
        Ok(forced)
    }

    /// Returns the tokens of `forced_decoder_ids`: positions, each with a token or with null.
    fn listed(self) -> Result<Vec<Option<u32>>, GenerateError> {
        let wrong = || self.wrong("forced_decoder_ids", "a list of positions from 1 to 64 with tokens");
        let Some(list) = self.value["forced_decoder_ids"].as_array() else { return Ok(Vec::new()) };
        let mut forced = Vec::new();
        for pair in list {
            let Some([at, token]) = pair.as_array().map(Vec::as_slice) else { return Err(wrong()) };
            let at = at.as_u64().and_then(|at| usize::try_from(at).ok()).ok_or_else(wrong)?;
            let number = token.as_u64().and_then(|token| u32::try_from(token).ok());
            if !(1..=MOST_FORCED).contains(&at) || number.is_none() != token.is_null() {
                return Err(wrong());
            }
            forced.resize(forced.len().max(at), None);
            forced[at - 1] = number;
        }
        Ok(forced)
    }

    /// Returns the token of the language, if the configuration names one.
    fn language(self) -> Result<Option<u32>, GenerateError> {
        let Some(language) = self.value["language"].as_str() else { return Ok(None) };
        let known = self.at("lang_to_id");
        let marked = format!("<|{language}|>");
        let name = if known.value[language].is_null() { &marked } else { language };
        match known.tokens(name)?.first() {
            Some(token) => Ok(Some(*token)),
            None => Err(self.wrong("language", "a key of `lang_to_id`, such as \"de\"")),
        }
    }

    /// Returns the tokens of an object's fields.
    fn numbers(self) -> Result<Vec<u32>, GenerateError> {
        let names = self.value.as_object().into_iter().flat_map(|fields| fields.keys());
        names.map(|name| self.tokens(name)).collect::<Result<Vec<_>, _>>().map(|tokens| tokens.concat())
    }

    /// Returns the tokens of `bad_words_ids`, which may not hold sequences.
    fn bad_words(self) -> Result<Vec<u32>, GenerateError> {
        let lists = self.value["bad_words_ids"].as_array().map(Vec::as_slice).unwrap_or_default();
        let single = |list: &Value| match list.as_array().map(Vec::as_slice) {
            Some([token]) => token.as_u64().and_then(|token| u32::try_from(token).ok()),
            _ => None,
        };
        let tokens: Option<Vec<u32>> = lists.iter().map(single).collect();
        let wrong = || self.wrong("bad_words_ids", "lists of one token each: sequences are not supported");
        // A text can always end.
        let ends = self.tokens("eos_token_id")?;
        Ok(tokens.ok_or_else(wrong)?.into_iter().filter(|token| !ends.contains(token)).collect())
    }
}
