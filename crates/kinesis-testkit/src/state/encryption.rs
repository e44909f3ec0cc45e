//! Server-side encryption as far as clients see it: the settings of a stream and the errors of its key.
//!
//! Nothing is encrypted. What matters to a client is what happens when the key cannot be used.

use super::Kinesis;
use super::stream::Stream;
use super::validate::required;
use crate::clock::Moment;
use crate::error::ServiceError;
use crate::model::{EncryptionInput, Response};
use crate::rule::Rule;

/// The state of the key of an encrypted stream, for [`TestKinesis::set_key_state`](crate::TestKinesis::set_key_state).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum KeyState {
    /// The key can be used.
    #[default]
    Enabled,
    /// `KMSDisabledException`
    Disabled,
    /// `KMSInvalidStateException`, as for a key that waits for its deletion.
    PendingDeletion,
    /// `KMSNotFoundException`
    Missing,
    /// `KMSAccessDeniedException`
    AccessDenied,
    /// `KMSThrottlingException`
    Throttled,
    /// `KMSOptInRequired`
    OptInRequired,
}

impl KeyState {
    /// The error code that calls get, none for a key that can be used.
    pub fn error_code(self) -> Option<&'static str> {
        Some(match self {
            Self::Enabled => return None,
            Self::Disabled => "KMSDisabledException",
            Self::PendingDeletion => "KMSInvalidStateException",
            Self::Missing => "KMSNotFoundException",
            Self::AccessDenied => "KMSAccessDeniedException",
            Self::Throttled => "KMSThrottlingException",
            Self::OptInRequired => "KMSOptInRequired",
        })
    }
}

/// The encryption of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Encryption {
    pub(crate) key_id: String,
    pub(crate) state: KeyState,
}

impl Stream {
    /// As it is reported of the stream.
    pub(super) fn encryption_type(&self) -> &'static str {
        if self.encryption.is_some() { "KMS" } else { "NONE" }
    }

    /// As it is reported of its records: nothing unless they are encrypted.
    pub(super) fn encryption_of_records(&self) -> Option<&'static str> {
        self.encryption.as_ref().map(|_| "KMS")
    }
}

impl Kinesis {
    pub(super) fn start_encryption(
        &mut self,
        now: Moment,
        input: &EncryptionInput,
    ) -> Result<Response, ServiceError> {
        check_type(input)?;
        let key_id = required(input.key_id.as_deref(), "keyId")?.to_owned();
        self.change_encryption(now, input, Some(Encryption { key_id, state: KeyState::Enabled }))
    }

    pub(super) fn stop_encryption(
        &mut self,
        now: Moment,
        input: &EncryptionInput,
    ) -> Result<Response, ServiceError> {
        check_type(input)?;
        required(input.key_id.as_deref(), "keyId")?;
        self.change_encryption(now, input, None)
    }

    fn change_encryption(
        &mut self,
        now: Moment,
        input: &EncryptionInput,
        encryption: Option<Encryption>,
    ) -> Result<Response, ServiceError> {
        let account = self.settings.account.clone();
        let due = now.plus(self.settings.reshard_delay);
        let stream = self.find_mut(input)?;
        stream.require_active(&account)?;
        stream.encryption = encryption;
        stream.status = super::Status::Updating;
        stream.pending = Some((due, super::Change::Activate));
        self.settle(now);
        Ok(Response::Empty)
    }

    /// Fails if the stream is encrypted with a key that cannot be used.
    pub(super) fn check_key(&self, stream: &str) -> Result<(), ServiceError> {
        if !self.enforces(Rule::KeyState) {
            return Ok(());
        }
        let encryption = self.streams.get(stream).and_then(|stream| stream.encryption.as_ref());
        let Some(encryption) = encryption else { return Ok(()) };
        match encryption.state.error_code() {
            None => Ok(()),
            Some(code) => Err(ServiceError::new(
                code,
                400,
                format!("The key {} of stream {stream} cannot be used.", encryption.key_id),
            )),
        }
    }

    /// Encrypts the stream, if it is not yet, with a key in this state.
    pub(crate) fn set_key_state(
        &mut self,
        now: Moment,
        name: &str,
        state: KeyState,
    ) -> Result<(), ServiceError> {
        self.settle(now);
        let missing = self.not_found(name);
        let stream = self.streams.get_mut(name).ok_or(missing)?;
        match &mut stream.encryption {
            Some(encryption) => encryption.state = state,
            None => stream.encryption = Some(Encryption { key_id: "alias/aws/kinesis".to_owned(), state }),
        }
        self.wake_stream(name);
        Ok(())
    }
}

fn check_type(input: &EncryptionInput) -> Result<(), ServiceError> {
    match required(input.encryption_type.as_deref(), "encryptionType")? {
        "KMS" => Ok(()),
        other => Err(ServiceError::constraint(
            &format!("'{other}'"),
            "encryptionType",
            "satisfy enum value set: [NONE, KMS]",
        )),
    }
}
