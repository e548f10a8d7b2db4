package dataplane_test

import (
	"log"
	"os"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/relay"
)

// The code of dataplane/README.md, which a test keeps equal to this: a node that needs Redis alone, and the relay of a
// node that has MySQL too.
func Example_stores() {
	hostname, _ := os.Hostname()

	origin, err := redisorigin.Open([]string{os.Getenv("WEIR_REDIS_URL")}, redisorigin.Options{})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := dataplane.New(dataplane.Config{
		Region: "eu-west-1", NodeID: hostname, Origin: origin, Settings: origin,
	})
	if err != nil {
		log.Fatal(err)
	}

	db, err := mysqlcounts.Open(os.Getenv("WEIR_MYSQL_DSN"))
	if err != nil {
		log.Fatal(err)
	}
	counts := mysqlcounts.New(db, mysqlcounts.Options{})
	carrier, err := relay.New(relay.Config{
		Region: "eu-west-1", Holder: hostname, Origin: origin,
		Feed: counts.Feed(), Counts: counts, Settings: counts,
	})
	if err != nil {
		log.Fatal(err)
	}

	_, _ = limiter, carrier
}
