//! What more than one verb gives: no verb knows another one's file.

pub(super) mod anomalies;
