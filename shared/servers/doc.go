// Package servers starts real MariaDB, MySQL, Redis and Restate servers as child processes on loopback, without root
// and in about a second each. Tests use it, and so does the all-in-one of one machine.
//
//	db, err := servers.StartSQL(ctx, servers.MySQL, servers.Options{})
//	defer db.Stop()
//	sql.Open("mysql", db.DSN("weir"))
//
// MariaDB and MySQL differ where it hurts (plans, grants, isolation, replication), so a test of SQL runs on both:
//
//	func TestRows(t *testing.T) { servers.EachSQL(t, testRows) }
//
//	func testRows(t *testing.T) {
//		dsn := servers.SharedSQL(t).DatabaseForTest(t)
//
// Every server is a [Process]: it can be killed the hard way (Kill), started again on the same data and the same
// port (Restart), and ended (Stop). A [Proxy] stands between a client and a server and breaks what lies between them.
//
// What is left behind: nothing. Stop removes the directory of a server that was given none. On Linux the kernel
// kills the servers when their parent dies, however it dies, and the directories of such a parent are removed by the
// next one that starts a server. On other systems the servers of a parent that was itself killed with SIGKILL
// stay until somebody ends them.
//
// When not to use it: in production. The servers run with small memory, without passwords, and the SQL servers survive
// the death of their process but not that of the machine (their log is synced once a second).
package servers
