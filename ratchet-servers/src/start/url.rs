//! Passwords in URLs.

/// The URL with passwords masked, for display. A text without a scheme is hidden: its password could be anywhere.
pub(crate) fn redacted(url: &str) -> String {
    if !url.contains("://") {
        return "a text that is no URL".to_owned();
    }
    let (mut shown, rest) = match split_credentials(url) {
        Some((scheme, user, _, rest)) => (format!("{scheme}://{user}:***@"), rest),
        None => (String::new(), url),
    };
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    shown.push_str(address);
    for (number, parameter) in query.split('&').filter(|parameter| !parameter.is_empty()).enumerate() {
        shown.push(if number == 0 { '?' } else { '&' });
        shown.push_str(if is_password(parameter) { "password=***" } else { parameter });
    }
    shown
}

/// Whether the URL contains a password.
pub(crate) fn has_password(url: &str) -> bool {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    split_credentials(url).is_some_and(|(_, _, password, _)| !password.is_empty())
        || query.split('&').any(is_password)
}

/// Scheme, user, password and the rest of a URL with a password. The last `@` ends it: a password may contain others.
fn split_credentials(url: &str) -> Option<(&str, &str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let (credentials, rest) = rest.rsplit_once('@')?;
    let (user, password) = credentials.split_once(':')?;
    Some((scheme, user, password, rest))
}

fn is_password(parameter: &str) -> bool {
    parameter.starts_with("password=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        assert_eq!(redacted("postgres://app:p@ss@db/x"), "postgres://app:***@db/x");
        assert_eq!(redacted("postgres://app:p?ss/@db/x?a=b"), "postgres://app:***@db/x?a=b");
        assert_eq!(redacted("postgres://app@db/x"), "postgres://app@db/x");
        assert_eq!(redacted("mongodb://db/x?replicaSet=rs0&w=1"), "mongodb://db/x?replicaSet=rs0&w=1");
        assert_eq!(redacted("postgres://db/x?user=a&password=b"), "postgres://db/x?user=a&password=***");
        assert_eq!(redacted("app:secret@db/x"), "a text that is no URL");
    }

    #[test]
    fn a_password_is_noticed() {
        assert!(has_password("postgres://app:p@ss@db/x"));
        assert!(has_password("postgres://db/x?password=b"));
        assert!(!has_password("postgres://app:@db/x"));
        assert!(!has_password("postgres://app@db/x"));
    }
}
