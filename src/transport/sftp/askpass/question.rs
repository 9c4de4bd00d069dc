//! Parses the questions of ssh. Their kind is recognised by their words alone, which are not
//! translated (readpass.c, sshconnect.c, sshconnect2.c, of OpenSSH 8.4 to 10).

use crate::base::untrusted::Untrusted;

/// A question of ssh while it connects to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Unique number.
    pub id: u64,
    /// Login of the host that ssh connects to. A jump host asks in its name.
    pub host: String,
    /// Kind of the question.
    pub expected_answer: ExpectedAnswer,
    /// Text of ssh.
    pub text: Untrusted,
    /// Whether the same question was answered before, so that the answer was rejected.
    pub is_repeated: bool,
}

/// The kind of answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedAnswer {
    /// A secret.
    Secret(SecretRecipient),
    /// Whether the key of an unknown host is right.
    HostKey(UnknownHostKey),
    /// Yes or no.
    Consent,
    /// No answer: the operator does something, for instance touches a security key, and ssh
    /// continues by itself.
    NoAnswer,
}

/// The program that receives a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretRecipient {
    /// Only ssh on this machine: a key's passphrase, a card's PIN.
    LocalSsh,
    /// The host that asks for it.
    RemoteHost,
}

/// The key of an unknown host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownHostKey {
    /// Name and address of the host.
    pub host: Untrusted,
    /// Key type: `ED25519`, `RSA` and so on.
    pub kind: Untrusted,
    /// `SHA256:` or `MD5:` and a digest.
    pub fingerprint: Untrusted,
    /// Further notes of ssh, for instance the other names of the key.
    pub notes: Vec<Untrusted>,
}

impl ExpectedAnswer {
    /// Parses a question. `hint` is ssh's own kind, which says little.
    pub(super) fn parse(text: &str, hint: &str) -> ExpectedAnswer {
        match hint {
            "none" => return ExpectedAnswer::NoAnswer,
            "confirm" => return ExpectedAnswer::Consent,
            _ => {}
        }
        if let Some(key) = UnknownHostKey::parse(text) {
            return ExpectedAnswer::HostKey(key);
        }
        let end = text.trim_end().trim_end_matches([':', '?']);
        let yes_or_no = end.ends_with("(yes/no)") || end.ends_with("(yes/no/[fingerprint])");
        if yes_or_no || text.starts_with("Please type 'yes'") {
            return ExpectedAnswer::Consent;
        }
        // A question of a host begins with "(user@host) ", so it cannot imitate one of these.
        let machine = ["Enter passphrase for ", "Enter PIN for "];
        let whose = if machine.iter().any(|start| text.starts_with(start)) {
            SecretRecipient::LocalSsh
        } else {
            SecretRecipient::RemoteHost
        };
        ExpectedAnswer::Secret(whose)
    }
}

impl ExpectedAnswer {
    /// Returns the accepted answers, where only some words are accepted.
    pub fn accepted_words(&self) -> Vec<String> {
        match self {
            ExpectedAnswer::HostKey(key) => {
                vec!["yes".to_string(), key.fingerprint.to_visible_line()]
            }
            ExpectedAnswer::Consent => vec!["yes".to_string(), "no".to_string()],
            ExpectedAnswer::Secret(_) | ExpectedAnswer::NoAnswer => Vec::new(),
        }
    }
}

impl Question {
    /// Returns a noun for the wanted answer, to follow "wants".
    pub fn short_name(&self) -> &'static str {
        let text = String::from_utf8_lossy(self.text.as_bytes()).to_ascii_lowercase();
        let has = |word: &str| text.contains(word);
        match &self.expected_answer {
            ExpectedAnswer::HostKey(_) => "its unknown host key to be checked",
            ExpectedAnswer::Consent => "a yes or no",
            ExpectedAnswer::NoAnswer => "something to be done",
            ExpectedAnswer::Secret(SecretRecipient::LocalSsh) if has("pin for") => "a PIN",
            ExpectedAnswer::Secret(SecretRecipient::LocalSsh) => "a passphrase",
            ExpectedAnswer::Secret(SecretRecipient::RemoteHost) if has("password") => "a password",
            ExpectedAnswer::Secret(SecretRecipient::RemoteHost) => "an answer",
        }
    }
}

impl UnknownHostKey {
    fn parse(text: &str) -> Option<UnknownHostKey> {
        let text = text.strip_prefix("The authenticity of host '")?;
        let (host, rest) = text.split_once("' can't be established")?;
        // An address in parentheses may be the name itself.
        let name = host.strip_suffix(')').and_then(|it| it.split_once(" ("));
        let name = name.filter(|(name, address)| name == address);
        let host = name.map_or(host, |(name, _)| name);
        let mut lines = rest.lines().skip(1).map(str::trim);
        let line = lines.find(|line| line.contains(" key fingerprint is"))?;
        let (kind, fingerprint) = line.split_once(" key fingerprint is")?;
        let fingerprint = fingerprint.trim_start_matches(':').trim();
        let fingerprint = fingerprint.trim_end_matches('.');
        let (digest, value) = fingerprint.split_once(':')?;
        let whole = [kind, digest, value].iter().all(|part| !part.is_empty());
        if !whole || fingerprint.contains(char::is_whitespace) {
            return None;
        }
        let rest: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        let (last, more) = rest.split_last()?;
        last.contains("continue connecting (yes/no")
            .then(|| UnknownHostKey {
                host: Untrusted::new(host),
                kind: Untrusted::new(kind),
                fingerprint: Untrusted::new(fingerprint),
                notes: more.iter().map(|line| Untrusted::new(*line)).collect(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINGERPRINT: &str = "SHA256:Ac3XpFvRSPT9V8cs9ByZqRqqW0EyiqFzXYZ0m1qyZ7w";
    const UNKNOWN_HOST_PROMPT: &str = "The authenticity of host '[127.0.0.1]:2222 ([127.0.0.1]:2222)' can't be established.\n\
        ED25519 key fingerprint is SHA256:Ac3XpFvRSPT9V8cs9ByZqRqqW0EyiqFzXYZ0m1qyZ7w.\n\
        This key is not known by any other names.\n\
        Are you sure you want to continue connecting (yes/no/[fingerprint])? ";

    fn question_with(text: &str, hint: &str) -> Question {
        Question {
            id: 1,
            host: "harbour".to_string(),
            expected_answer: ExpectedAnswer::parse(text, hint),
            text: Untrusted::new(text),
            is_repeated: false,
        }
    }

    #[test]
    fn host_key_question_is_parsed_across_ssh_versions() {
        let ExpectedAnswer::HostKey(key) = ExpectedAnswer::parse(UNKNOWN_HOST_PROMPT, "") else {
            panic!("{UNKNOWN_HOST_PROMPT}");
        };
        assert_eq!(key.host.to_visible_line(), "[127.0.0.1]:2222");
        assert_eq!(key.kind.to_visible_line(), "ED25519");
        assert_eq!(key.fingerprint.to_visible_line(), FINGERPRINT);
        let more: Vec<String> = key.notes.iter().map(Untrusted::to_visible_line).collect();
        assert_eq!(more, ["This key is not known by any other names."]);
        // A colon and no full stop, other names, a picture of the key.
        let other = UNKNOWN_HOST_PROMPT
            .replace("fingerprint is SHA256", "fingerprint is: SHA256")
            .replace("yZ7w.\n", "yZ7w\n+--[ED25519 256]--+\n|  o.    |\n");
        let ExpectedAnswer::HostKey(same) = ExpectedAnswer::parse(&other, "") else {
            panic!("{other}");
        };
        let named = UNKNOWN_HOST_PROMPT.replacen("[127.0.0.1]:2222", "harbour", 1);
        let ExpectedAnswer::HostKey(named) = ExpectedAnswer::parse(&named, "") else {
            panic!("{named}");
        };
        assert_eq!(named.host.to_visible_line(), "harbour ([127.0.0.1]:2222)");
        assert_eq!(same.fingerprint, key.fingerprint);
        assert_eq!(same.notes.len(), 3);
        let old = UNKNOWN_HOST_PROMPT
            .replace(FINGERPRINT, "MD5:9d:38:5b")
            .replace("yes/no/[fingerprint]", "yes/no");
        let ExpectedAnswer::HostKey(old) = ExpectedAnswer::parse(&old, "") else {
            panic!("{old}");
        };
        assert_eq!(old.fingerprint.to_visible_line(), "MD5:9d:38:5b");
    }

    #[test]
    fn only_whole_words_answer_yes_or_no() {
        assert_eq!(
            ExpectedAnswer::parse(UNKNOWN_HOST_PROMPT, "").accepted_words(),
            ["yes", FINGERPRINT]
        );
        assert_eq!(
            ExpectedAnswer::parse("", "confirm").accepted_words(),
            ["yes", "no"]
        );
        assert!(
            ExpectedAnswer::parse("Enter passphrase for k: ", "")
                .accepted_words()
                .is_empty()
        );
    }

    #[test]
    fn host_question_cannot_imitate_local_question() {
        let wants = |text: &str| ExpectedAnswer::parse(text, "");
        let passphrase = "Enter passphrase for key '/home/op/.ssh/id_ed25519': ";
        assert_eq!(
            wants(passphrase),
            ExpectedAnswer::Secret(SecretRecipient::LocalSsh)
        );
        assert_eq!(
            wants(&format!("(op@harbour) {passphrase}")),
            ExpectedAnswer::Secret(SecretRecipient::RemoteHost)
        );
        assert_eq!(
            wants(&format!("(op@harbour) {UNKNOWN_HOST_PROMPT}")),
            ExpectedAnswer::Consent,
            "it is not a host key"
        );
        assert_eq!(
            wants("op@harbour's password: "),
            ExpectedAnswer::Secret(SecretRecipient::RemoteHost)
        );
        assert_eq!(
            wants("(op@harbour) Code: "),
            ExpectedAnswer::Secret(SecretRecipient::RemoteHost)
        );
        assert_eq!(
            wants("Accept updated hostkeys? (yes/no): "),
            ExpectedAnswer::Consent
        );
        assert_eq!(
            wants(""),
            ExpectedAnswer::Secret(SecretRecipient::RemoteHost)
        );
    }

    #[test]
    fn incomplete_host_key_question_is_not_one() {
        let without =
            |what: &str| ExpectedAnswer::parse(&UNKNOWN_HOST_PROMPT.replace(what, ""), "");
        for what in [
            "' can't be established",
            "ED25519 key fingerprint is SHA256:Ac3XpFvRSPT9V8cs9ByZqRqqW0EyiqFzXYZ0m1qyZ7w.\n",
            "ED25519",
            "SHA256:",
            "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
        ] {
            assert!(
                !matches!(without(what), ExpectedAnswer::HostKey(_)),
                "{what}"
            );
        }
    }

    #[test]
    fn question_noun_names_the_wanted_answer() {
        let noun = |text: &str, hint: &str| question_with(text, hint).short_name();
        assert_eq!(
            noun(UNKNOWN_HOST_PROMPT, ""),
            "its unknown host key to be checked"
        );
        assert_eq!(noun("Enter passphrase for key 'k': ", ""), "a passphrase");
        assert_eq!(noun("Enter PIN for 'card': ", ""), "a PIN");
        assert_eq!(noun("op@harbour's password: ", ""), "a password");
        assert_eq!(noun("(op@harbour) Code: ", ""), "an answer");
        let touch = "Confirm user presence for key ED25519-SK SHA256:abc";
        assert_eq!(noun(touch, "none"), "something to be done");
        assert_eq!(noun("Allow use of key k?", "confirm"), "a yes or no");
    }
}
