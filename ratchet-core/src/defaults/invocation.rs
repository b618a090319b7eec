use std::borrow::Cow;

use ratchet_api::spi::{Invocation, InvocationError, JobInvocationResolver};
use ratchet_api::{InvalidName, JobPayload, JsonText};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::error::Category;
use serde_json::value::RawValue;

/// A resolver that writes and reads `{"target": …, "method": …, "args": […]}`.
///
/// Its errors describe unreadable text by position, never by content: a payload may hold secrets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JsonInvocationResolver;

/// A call in any JSON formatting.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call<'a> {
    #[serde(borrow)]
    target: Cow<'a, str>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    args: &'a RawValue,
}

impl JobInvocationResolver for JsonInvocationResolver {
    fn to_payload(&self, invocation: &Invocation) -> Result<JobPayload, InvocationError> {
        check_args(invocation.args.as_str())?;
        Ok(JobPayload::new(&invocation.target, &invocation.method, &invocation.args)?)
    }

    fn to_invocation(&self, payload: &JobPayload) -> Result<Invocation, InvocationError> {
        let args = match own_args(payload)? {
            Some(args) if check_args(args).is_ok() => args,
            _ => foreign_args(payload)?,
        };
        Ok(Invocation {
            target: payload.target().as_str().to_owned(),
            method: payload.method().as_str().to_owned(),
            args: JsonText::from_stored(args),
        })
    }
}

/// The arguments of a text that `to_payload` wrote, byte for byte.
fn own_args(payload: &JobPayload) -> Result<Option<&str>, InvalidName> {
    let nothing = JsonText::from_stored("");
    let frame = JobPayload::new(payload.target().as_str(), payload.method().as_str(), &nothing)?;
    let head = frame.text().as_str().trim_end_matches('}');
    Ok(payload.text().as_str().strip_prefix(head).and_then(|rest| rest.strip_suffix('}')))
}

/// The arguments of a text that something else wrote.
fn foreign_args(payload: &JobPayload) -> Result<&str, InvocationError> {
    let call: Call<'_> = payload.text().decode().map_err(|error| undecodable(&error))?;
    if call.target != payload.target().as_str() || call.method != payload.method().as_str() {
        return Err(InvocationError::Undecodable(
            "it names another target or method than its row".to_owned(),
        ));
    }
    check_args(call.args.get())?;
    Ok(call.args.get())
}

fn check_args(args: &str) -> Result<(), InvocationError> {
    match serde_json::from_str::<Vec<IgnoredAny>>(args) {
        Ok(_) => Ok(()),
        Err(_) => Err(InvocationError::Undecodable("the arguments are not a JSON array".to_owned())),
    }
}

fn undecodable(error: &serde_json::Error) -> InvocationError {
    let problem = match error.classify() {
        Category::Data => "not an object of target, method and args",
        Category::Eof => "the text ends too early",
        Category::Syntax | Category::Io => "not valid JSON",
    };
    InvocationError::Undecodable(format!("{problem} (line {}, column {})", error.line(), error.column()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratchet_api::{MethodName, TargetName};

    use super::*;

    fn call(args: &str) -> Invocation {
        Invocation { target: "billing.Pay".into(), method: "run".into(), args: JsonText::from_stored(args) }
    }

    fn stored(text: &str) -> JobPayload {
        let (target, method) = (TargetName::new("billing.Pay").unwrap(), MethodName::new("run").unwrap());
        JobPayload::from_stored(target, method, JsonText::from_stored(text))
    }

    #[test]
    fn a_call_becomes_its_json_and_comes_back_byte_for_byte() {
        let payload = JsonInvocationResolver.to_payload(&call("[42]")).unwrap();
        assert_eq!(payload.text().as_str(), r#"{"target":"billing.Pay","method":"run","args":[42]}"#);
        let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        for args in ["[]", " [ 1 ,2 ]\n", r#"[{"a":1e400,"a":"\ud800"}]"#, r#"["}",[]]"#, &deep] {
            let payload = JsonInvocationResolver.to_payload(&call(args)).unwrap();
            assert_eq!(JsonInvocationResolver.to_invocation(&payload), Ok(call(args)));
        }
    }

    #[test]
    fn a_call_that_could_not_be_read_again_is_not_stored() {
        for args in ["", "42", "{}", "null", "[1", "[1] [2]", "[1],\"x\":[2]"] {
            let problem = JsonInvocationResolver.to_payload(&call(args)).unwrap_err().to_string();
            assert_eq!(problem, "payload is not a call: the arguments are not a JSON array");
        }
        let nameless = Invocation { target: String::new(), ..call("[]") };
        let problem = JsonInvocationResolver.to_payload(&nameless).unwrap_err();
        assert!(matches!(problem, InvocationError::Name(_)));
    }

    #[test]
    fn other_notations_of_the_same_call_are_read() {
        for text in [
            r#"{ "method": "run", "args": [42], "target": "billing.Pay" }"#,
            r#"{"target":"billing\u002ePay","method":"run","args":[42]}"#,
        ] {
            assert_eq!(JsonInvocationResolver.to_invocation(&stored(text)), Ok(call("[42]")));
        }
    }

    #[test]
    fn text_that_is_no_call_is_an_error_that_does_not_repeat_it() {
        let not_an_object = "not an object of target, method and args";
        for (text, problem) in [
            ("", "the text ends too early"),
            (r#"{"target":"billing.Pay","method":"run","args":[42]"#, "the text ends too early"),
            ("s3cret", "not valid JSON"),
            ("\"s3cret\"", not_an_object),
            ("[42]", not_an_object),
            (r#"{"target":"billing.Pay","method":"run"}"#, not_an_object),
            (r#"{"target":"billing.Pay","method":"s3cret","method":"run","args":[]}"#, not_an_object),
            (r#"{"target":"billing.Pay","method":"run","args":[],"s3cret":1}"#, not_an_object),
            (
                r#"{"target":"billing.Pay","method":"run","args":{"s3cret":1}}"#,
                "the arguments are not a JSON array",
            ),
            (r#"{"target":"billing.Pay","method":"run","args":[1],"x":[2]}"#, not_an_object),
            (
                r#"{"target":"evil.Pay","method":"run","args":[]}"#,
                "it names another target or method than its row",
            ),
            (
                r#"{"target":"billing.Pay","method":"s3cret","args":[]}"#,
                "it names another target or method than its row",
            ),
        ] {
            let error = JsonInvocationResolver.to_invocation(&stored(text)).unwrap_err();
            assert!(matches!(error, InvocationError::Undecodable(_)));
            let said = error.to_string();
            assert!(said.contains(problem) && !said.contains("s3cret"), "{text}: {said}");
        }
    }

    proptest! {
            #[test]
        fn every_call_comes_back(target in "[^\\x00-\\x1f\\x7f-\\u{9f}]{1,20}", method in "[ -~]{1,20}", args in ".*") {
            let args = JsonText::of(&[args]).unwrap();
            let invocation = Invocation { target, method, args };
            let payload = JsonInvocationResolver.to_payload(&invocation).unwrap();
            prop_assert_eq!(payload.target().as_str(), &invocation.target);
            prop_assert_eq!(payload.method().as_str(), &invocation.method);
            prop_assert_eq!(JsonInvocationResolver.to_invocation(&payload).unwrap(), invocation);
        }

        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            let _ = JsonInvocationResolver.to_invocation(&stored(&text));
        }
    }
}
