//! Message payloads, one file per message.
