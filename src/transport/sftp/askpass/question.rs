//! What a text of ssh's wants to know. ssh tells the kind of a question by its
//! words alone, which are not translated (readpass.c, sshconnect.c, sshconnect2.c,
//! of OpenSSH 8.4 to 10).

use crate::untrusted::Untrusted;

/// A question of ssh's, while it connects to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its number; no other has it.
    pub id: u64,
    /// The login of the host that is being connected to. A jump host on the way asks in its
    /// name.
    pub host: String,
    /// What it is about.
    pub wants: Wants,
    /// How ssh puts it.
    pub text: Untrusted,
    /// The same was asked before and answered, so that answer was not accepted.
    pub again: bool,
}

/// What a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Something that nobody else may see.
    Secret(Whose),
    /// Whether a host that is not known has the right key.
    HostKey(HostKey),
    /// Yes or no.
    Consent,
    /// No answer: something has to be done, a security key touched for instance,
    /// and then it goes by itself.
    Nothing,
}

/// Who gets to see a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Only ssh on this machine: a key's passphrase, a card's PIN.
    Machine,
    /// The host that asks for it.
    Host,
}

/// The key of a host that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKey {
    /// The name and address by which it is reached.
    pub host: Untrusted,
    /// `ED25519`, `RSA` and so on.
    pub kind: Untrusted,
    /// `SHA256:` or `MD5:` and a digest.
    pub fingerprint: Untrusted,
    /// What else ssh says of it, for instance under which names it is known.
    pub more: Vec<Untrusted>,
}

impl Wants {
    /// Reads a question. `hint` is what ssh says of its kind, which is little.
    pub(super) fn of(text: &str, hint: &str) -> Wants {
        match hint {
            "none" => return Wants::Nothing,
            "confirm" => return Wants::Consent,
            _ => {}
        }
        if let Some(key) = HostKey::of(text) {
            return Wants::HostKey(key);
        }
        let end = text.trim_end().trim_end_matches([':', '?']);
        let yes_or_no = end.ends_with("(yes/no)") || end.ends_with("(yes/no/[fingerprint])");
        if yes_or_no || text.starts_with("Please type 'yes'") {
            return Wants::Consent;
        }
        // What a host asks begins with "(user@host) ", so it cannot pass for one
        // of these.
        let machine = ["Enter passphrase for ", "Enter PIN for "];
        let whose = match machine.iter().any(|start| text.starts_with(start)) {
            true => Whose::Machine,
            false => Whose::Host,
        };
        Wants::Secret(whose)
    }
}

impl Wants {
    /// The words that answer it, where only some do.
    pub fn words(&self) -> Vec<String> {
        match self {
            Wants::HostKey(key) => vec!["yes".to_string(), key.fingerprint.visible()],
            Wants::Consent => vec!["yes".to_string(), "no".to_string()],
            Wants::Secret(_) | Wants::Nothing => Vec::new(),
        }
    }
}

impl Question {
    /// What it is for, to go behind "wants".
    pub fn noun(&self) -> &'static str {
        let text = String::from_utf8_lossy(self.text.bytes()).to_ascii_lowercase();
        let has = |word: &str| text.contains(word);
        match &self.wants {
            Wants::HostKey(_) => "its host key to be accepted",
            Wants::Consent => "a yes or no",
            Wants::Nothing => "something to be done",
            Wants::Secret(Whose::Machine) if has("pin for") => "a PIN",
            Wants::Secret(Whose::Machine) => "a passphrase",
            Wants::Secret(Whose::Host) if has("password") => "a password",
            Wants::Secret(Whose::Host) => "an answer",
        }
    }
}

impl HostKey {
    fn of(text: &str) -> Option<HostKey> {
        let text = text.strip_prefix("The authenticity of host '")?;
        let (host, rest) = text.split_once("' can't be established")?;
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
            .then(|| HostKey {
                host: Untrusted::new(host),
                kind: Untrusted::new(kind),
                fingerprint: Untrusted::new(fingerprint),
                more: more.iter().map(|line| Untrusted::new(*line)).collect(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINGERPRINT: &str = "SHA256:Ac3XpFvRSPT9V8cs9ByZqRqqW0EyiqFzXYZ0m1qyZ7w";
    const UNKNOWN: &str = "The authenticity of host '[127.0.0.1]:2222 ([127.0.0.1]:2222)' can't be established.\n\
        ED25519 key fingerprint is SHA256:Ac3XpFvRSPT9V8cs9ByZqRqqW0EyiqFzXYZ0m1qyZ7w.\n\
        This key is not known by any other names.\n\
        Are you sure you want to continue connecting (yes/no/[fingerprint])? ";

    fn asked(text: &str, hint: &str) -> Question {
        Question {
            id: 1,
            host: "harbour".to_string(),
            wants: Wants::of(text, hint),
            text: Untrusted::new(text),
            again: false,
        }
    }

    #[test]
    fn a_host_key_is_read_from_the_words_of_several_versions() {
        let Wants::HostKey(key) = Wants::of(UNKNOWN, "") else {
            panic!("{UNKNOWN}");
        };
        assert_eq!(key.host.visible(), "[127.0.0.1]:2222 ([127.0.0.1]:2222)");
        assert_eq!(key.kind.visible(), "ED25519");
        assert_eq!(key.fingerprint.visible(), FINGERPRINT);
        let more: Vec<String> = key.more.iter().map(Untrusted::visible).collect();
        assert_eq!(more, ["This key is not known by any other names."]);
        // A colon and no full stop, other names, a picture of the key.
        let other = UNKNOWN
            .replace("fingerprint is SHA256", "fingerprint is: SHA256")
            .replace("yZ7w.\n", "yZ7w\n+--[ED25519 256]--+\n|  o.    |\n");
        let Wants::HostKey(same) = Wants::of(&other, "") else {
            panic!("{other}");
        };
        assert_eq!(same.fingerprint, key.fingerprint);
        assert_eq!(same.more.len(), 3);
        let old = UNKNOWN
            .replace(FINGERPRINT, "MD5:9d:38:5b")
            .replace("yes/no/[fingerprint]", "yes/no");
        let Wants::HostKey(old) = Wants::of(&old, "") else {
            panic!("{old}");
        };
        assert_eq!(old.fingerprint.visible(), "MD5:9d:38:5b");
    }

    #[test]
    fn only_whole_words_answer() {
        assert_eq!(Wants::of(UNKNOWN, "").words(), ["yes", FINGERPRINT]);
        assert_eq!(Wants::of("", "confirm").words(), ["yes", "no"]);
        assert!(Wants::of("Enter passphrase for k: ", "").words().is_empty());
    }

    #[test]
    fn what_a_host_asks_cannot_pass_for_a_question_of_this_machine() {
        let wants = |text: &str| Wants::of(text, "");
        let passphrase = "Enter passphrase for key '/home/op/.ssh/id_ed25519': ";
        assert_eq!(wants(passphrase), Wants::Secret(Whose::Machine));
        assert_eq!(
            wants(&format!("(op@harbour) {passphrase}")),
            Wants::Secret(Whose::Host)
        );
        assert_eq!(
            wants(&format!("(op@harbour) {UNKNOWN}")),
            Wants::Consent,
            "it is no host key"
        );
        assert_eq!(wants("op@harbour's password: "), Wants::Secret(Whose::Host));
        assert_eq!(wants("(op@harbour) Code: "), Wants::Secret(Whose::Host));
        assert_eq!(wants("Accept updated hostkeys? (yes/no): "), Wants::Consent);
        assert_eq!(wants(""), Wants::Secret(Whose::Host));
    }

    #[test]
    fn a_host_key_that_lacks_something_is_no_host_key() {
        let without = |what: &str| Wants::of(&UNKNOWN.replace(what, ""), "");
        for what in [
            "' can't be established",
            "ED25519 key fingerprint is SHA256:Ac3XpFvRSPT9V8cs9ByZqRqqW0EyiqFzXYZ0m1qyZ7w.\n",
            "ED25519",
            "SHA256:",
            "Are you sure you want to continue connecting (yes/no/[fingerprint])? ",
        ] {
            assert!(!matches!(without(what), Wants::HostKey(_)), "{what}");
        }
    }

    #[test]
    fn hints_and_words_name_what_is_wanted() {
        let noun = |text: &str, hint: &str| asked(text, hint).noun();
        assert_eq!(noun(UNKNOWN, ""), "its host key to be accepted");
        assert_eq!(noun("Enter passphrase for key 'k': ", ""), "a passphrase");
        assert_eq!(noun("Enter PIN for 'card': ", ""), "a PIN");
        assert_eq!(noun("op@harbour's password: ", ""), "a password");
        assert_eq!(noun("(op@harbour) Code: ", ""), "an answer");
        let touch = "Confirm user presence for key ED25519-SK SHA256:abc";
        assert_eq!(noun(touch, "none"), "something to be done");
        assert_eq!(noun("Allow use of key k?", "confirm"), "a yes or no");
    }
}
