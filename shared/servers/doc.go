// Package servers starts real MariaDB, MySQL, Redis, Valkey and Restate servers as child processes on loopback, without
// root and in about a second each. Tests and the all-in-one for a single machine use it, for example:
//
//	db, err := servers.StartSQL(ctx, servers.MySQL, servers.Options{})
//	defer db.Stop()
//	sql.Open("mysql", db.DSN("weir"))
//
// MariaDB and MySQL differ in plans, grants, isolation and replication, so a test of SQL runs on both:
//
//	func TestRows(t *testing.T) { servers.EachSQL(t, testRows) }
//
//	func testRows(t *testing.T) {
//		dsn := servers.SharedSQL(t).DatabaseForTest(t)
//
// Redis and Valkey differ less. A test runs on one of them, by turns: see [RedisKindOf].
//
// Every server is a [Process]. You can kill it as a crash would (Kill), start it again on the same data and port
// (Restart), and end it (Stop). A [Proxy] between a client and a server can break their connection.
//
// Nothing is left behind. Stop removes the directory of a server without a given Dir. On Linux the kernel kills the
// servers when their parent dies for any reason, and the next process that starts a server removes their directories.
// On other systems the servers of a parent that was killed with SIGKILL run until a person ends them.
//
// Do not use it in production. The servers run with small memory and without passwords. The SQL servers survive the
// death of their process but not a crash of the machine, because their log is synced once a second.
package servers
