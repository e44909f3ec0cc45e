//! Named scripts: the service's side of situations from the field, ready for tests of consumers and producers.
//!
//! Each function brings a situation about; the client under test does the rest. Some give a [`Builder`](crate::Builder)
//! or [`ServeOptions`](crate::ServeOptions) to start with, the others act on a service that runs. The numbers (`F-01`
//! ...) name the situation. All rules of the service are on in each of them unless a script says otherwise.
//!
//! ```
//! use kinesis_testkit::{TestKinesis, scenarios};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let kinesis = TestKinesis::new();
//! kinesis.create_stream("flights", 4)?;
//! scenarios::silent_subscription(&kinesis, "flights");
//! assert_eq!(kinesis.faults().pending(), 1);
//! # Ok(())
//! # }
//! ```

mod control;
mod pushing;
mod reading;
mod writing;

use std::time::Duration;

pub use control::*;
pub use pushing::*;
pub use reading::*;
pub use writing::*;

const FOREVER: Duration = Duration::MAX;
const THROTTLED: &str = "ProvisionedThroughputExceededException";
