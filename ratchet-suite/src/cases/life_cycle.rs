//! The life cycle of a job under random sequences of user and node actions.

use crate::{Fixture, model};

crate::cases! {
    every_sequence_of_steps_leads_where_the_model_says;
}

// shows: S22 S24 S25 S28 S29 S30 S31 S32 S33 S34 S35 S36 S37 S91 S92 S95 S97
async fn every_sequence_of_steps_leads_where_the_model_says(fx: Fixture) {
    model::check(&fx).await;
}
