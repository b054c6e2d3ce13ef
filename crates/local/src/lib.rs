//! Real clusters on one machine: Redis and etcd as child processes, nodes of the service, and a
//! proxy that breaks the lines between them; for tests, measurements and trying things out. Linux
//! only: it stands on `setpriv`, `flock` and `/proc`.
//!
//! Every fixture owns its folder, its ports and its processes, and gives them back on drop. A
//! fixture kept in a static is never dropped; its processes end with the process that started them
//! (see [`process`]), and its folder is swept by the next run (see [`temp`]).

pub mod clock;
pub mod etcd;
mod http;
mod lock;
pub mod machine;
pub mod node;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod shared;
pub mod temp;
pub mod wait;

pub use clock::FakeClock;
pub use etcd::{EtcdCluster, EtcdMember};
pub use machine::Machine;
pub use node::{Node, NodeAuth, NodeOptions};
pub use ports::Ports;
pub use process::Process;
pub use proxy::{Direction, Proxy};
pub use redis::{Auth, ClusterOptions, RedisCluster, RedisNode, RedisServer, ServerOptions};
pub use temp::TestDir;
pub use wait::eventually;
