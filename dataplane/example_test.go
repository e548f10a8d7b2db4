package dataplane_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// A limiter without any configuration counts for its own process.
func Example() {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	if err := limiter.Start(ctx); err != nil {
		panic(err)
	}
	defer func() { _ = limiter.Stop(ctx) }()

	request := dataplane.Request{
		Workspace: "acme", Namespace: "api", Identifier: "user_42",
		Limit: 3, Duration: time.Hour, Cost: 1,
	}
	for range 4 {
		d := limiter.Allow(ctx, request)
		fmt.Println(d.Allowed, d.Remaining, d.Source)
	}
	// Output:
	// true 2 local
	// true 1 local
	// true 0 local
	// false 0 local
}

// A batch passes as a whole or not at all.
func ExampleLimiter_AllowMany() {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		panic(err)
	}
	batch := limiter.AllowMany(context.Background(), []dataplane.Request{
		{Workspace: "acme", Namespace: "requests", Identifier: "user_42", Limit: 100, Duration: time.Minute, Cost: 1},
		{Workspace: "acme", Namespace: "tokens", Identifier: "user_42", Limit: 4000, Duration: time.Minute, Cost: 5000},
	})
	fmt.Println(batch.Allowed)
	for _, d := range batch.Decisions {
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// false
	// true 100
	// false 4000
}
