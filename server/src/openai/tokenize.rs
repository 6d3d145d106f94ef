//! `/tokenize` and `/detokenize`, as in vLLM.

use axum::Json;
use serde_json::{Value, json};

use super::messages::Conversation;
use crate::error::ApiError;
use crate::fields::RequestFields;
use crate::routes::{AuthorizedRequest, off_reactor};
use crate::state::ServerState;
use crate::texts::without_template;

/// Returns the tokens of a text or of a chat.
pub(crate) async fn tokenize(call: AuthorizedRequest) -> Result<Json<Value>, ApiError> {
    off_reactor(move || {
        let mut fields = RequestFields::of_body(&call.body)?;
        check_model(&mut fields, &call.state)?;
        let shows_texts = fields.take("return_token_strs").unwrap_or(false);
        let texts = &call.state.texts;
        let prompt = fields.take::<String>("prompt");
        let adds_special = fields.take("add_special_tokens").unwrap_or(prompt.is_some());
        let text = match prompt {
            Some(text) => fields.finish(Some(text))?,
            None => {
                let conversation = Conversation::read(&mut fields);
                let conversation = fields.finish(Some(conversation))?;
                let template = texts.template.as_ref();
                conversation
                    .render(template.map_err(|found| ApiError::of_fields(&without_template(found)))?)?
            }
        };
        let tokenizer = &texts.tokenizer;
        let ids = if adds_special { tokenizer.encode(&text) } else { tokenizer.encode_whole(&text) };
        let ids = ids.map_err(|found| ApiError::of_fields(&found))?;
        let strings: Option<Vec<String>> =
            shows_texts.then(|| ids.iter().map(|id| texts.vocabulary.text(*id)).collect());
        Ok(Json(json!({
            "count": ids.len(),
            "max_model_len": call.state.context,
            "tokens": ids,
            "token_strs": strings,
        })))
    })
    .await
}

/// Returns the text of tokens.
pub(crate) async fn detokenize(call: AuthorizedRequest) -> Result<Json<Value>, ApiError> {
    off_reactor(move || {
        let mut fields = RequestFields::of_body(&call.body)?;
        check_model(&mut fields, &call.state)?;
        let ids = fields.require::<Vec<u32>>("tokens");
        let ids = fields.finish(ids)?;
        let text = call.state.texts.tokenizer.decode(&ids).map_err(|found| ApiError::of_fields(&found))?;
        Ok(Json(json!({"prompt": text})))
    })
    .await
}

fn check_model(fields: &mut RequestFields, state: &ServerState) -> Result<(), ApiError> {
    let model: Option<String> = fields.take("model");
    state.model_name(model.as_deref()).map(drop)
}
