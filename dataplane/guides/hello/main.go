// Hello decides one request: the program that the README shows.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/weirhq/weir/dataplane"
)

func main() {
	limiter, err := dataplane.New(dataplane.Config{}) // in a fleet, set Region, Origin and Settings
	if err != nil {
		log.Fatal(err)
	}
	if err := limiter.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	defer limiter.Stop(context.Background()) // sends the last counts

	switch d := limiter.Allow(context.Background(), dataplane.Request{
		Workspace: "acme", Namespace: "api", Identifier: "user_42", Limit: 100, Duration: time.Minute,
	}); {
	case d.Err != nil:
		fmt.Println("bad request:", d.Err) // a field is out of bounds, for example an empty Identifier
	case d.Allowed:
		fmt.Println("allowed,", d.Remaining, "left")
	default:
		fmt.Println("denied, try again in", d.RetryAfter)
	}
}
