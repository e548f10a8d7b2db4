package dataplane_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// The code of the README, which a test keeps equal to this.
func Example_embed() {
	ctx := context.Background()
	limiter, err := dataplane.New(dataplane.Config{}) // with Region, Origin and Settings: a fleet's
	if err != nil {
		log.Fatal(err)
	}
	if err := limiter.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer limiter.Stop(ctx) // sends the last counts

	d := limiter.Allow(ctx, dataplane.Request{
		Workspace: "acme", Namespace: "api", Identifier: "user_42",
		Limit: 100, Duration: time.Minute, Cost: 1,
	})
	if d.Err != nil {
		log.Fatal(d.Err) // a field is out of its bounds: neither allowed nor denied
	}
	if !d.Allowed {
		fmt.Println("try again in", d.RetryAfter)
		return
	}
	fmt.Println("allowed,", d.Remaining, "left")
	// Output: allowed, 99 left
}
