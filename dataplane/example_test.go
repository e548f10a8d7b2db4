package dataplane_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

// A limiter without any configuration limits its own process.
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
		Limit: 3, Duration: 24 * time.Hour, Cost: 1,
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

// Peek returns the decision that Allow would make, and counts nothing: for example, a page can show the remaining
// budget without spending it.
func ExampleLimiter_Peek() {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		panic(err)
	}
	request := dataplane.Request{
		Workspace: "acme", Namespace: "api", Identifier: "user_42",
		Limit: 3, Duration: 24 * time.Hour, Cost: 1,
	}
	ctx := context.Background()
	fmt.Println("would leave", limiter.Peek(ctx, request).Remaining)
	fmt.Println("would leave", limiter.Peek(ctx, request).Remaining)
	fmt.Println("leaves", limiter.Allow(ctx, request).Remaining)
	// Output:
	// would leave 2
	// would leave 2
	// leaves 2
}

// A batch passes as a whole or not at all. A denied batch reports for each item whether it would have passed, and
// counts nothing.
func ExampleLimiter_AllowMany() {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		panic(err)
	}
	ask := func(tokens int64) {
		batch := limiter.AllowMany(context.Background(), []dataplane.Request{
			{Workspace: "acme", Namespace: "requests", Identifier: "user_42", Limit: 100, Duration: 24 * time.Hour, Cost: 1},
			{Workspace: "acme", Namespace: "tokens", Identifier: "user_42", Limit: 4000, Duration: 24 * time.Hour, Cost: tokens},
		})
		fmt.Println("batch allowed:", batch.Allowed)
		for _, d := range batch.Decisions {
			fmt.Printf("  allowed: %-5v  remaining: %4d  never passes: %v\n", d.Allowed, d.Remaining, d.NeverPasses)
		}
	}
	ask(5000)
	ask(3000)
	// Output:
	// batch allowed: false
	//   allowed: true   remaining:  100  never passes: false
	//   allowed: false  remaining: 4000  never passes: true
	// batch allowed: true
	//   allowed: true   remaining:   99  never passes: false
	//   allowed: true   remaining: 1000  never passes: false
}

// The cost of a language model's answer is only measured afterwards: reserve an estimate, then settle the true cost.
func ExampleLimiter_AllowUpTo() {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	tokens := dataplane.Request{
		Workspace: "acme", Namespace: "tokens", Identifier: "user_42",
		Limit: 4000, Duration: 24 * time.Hour, Cost: 1000,
	}
	held, d := limiter.AllowUpTo(ctx, tokens)
	fmt.Println("reserved:", d.Allowed, "remaining:", d.Remaining)

	change, err := held.Settle(300) // the true cost of the answer
	if err != nil {
		panic(err)
	}
	tokens.Cost = 1
	fmt.Println("given back:", -change, "remaining:", limiter.Peek(ctx, tokens).Remaining+1)
	// Output:
	// reserved: true remaining: 3000
	// given back: 700 remaining: 3700
}

// A connection sends many requests for one key: a handle hashes its names and looks them up once.
func ExampleLimiter_Handle() {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		panic(err)
	}
	connection, err := limiter.Handle("acme", "messages", "connection_7", 24*time.Hour)
	if err != nil {
		panic(err)
	}
	const limit = 100
	for _, bytes := range []dataplane.Cost{40, 50, 60} {
		d := connection.Allow(context.Background(), limit, bytes)
		fmt.Println(bytes, d.Allowed, d.Remaining)
	}
	// Output:
	// 40 true 60
	// 50 true 10
	// 60 false 10
}

// Two nodes of a region share an origin, here in memory. The cost that one node accepts reaches the origin with the
// next replay tick, or at the latest when the node stops. The other node reads it before it first decides on the key.
func Example_fleet() {
	origin := memstore.NewOrigin(memstore.OriginOptions{})
	node := func() *dataplane.Limiter {
		limiter, err := dataplane.New(dataplane.Config{Region: "eu-west-1", Origin: origin})
		if err != nil {
			panic(err)
		}
		return limiter
	}
	ctx := context.Background()
	request := dataplane.Request{
		Workspace: "acme", Namespace: "api", Identifier: "user_42",
		Limit: 10, Duration: 24 * time.Hour, Cost: 6,
	}

	first, second := node(), node()
	if err := first.Start(ctx); err != nil {
		panic(err)
	}
	d := first.Allow(ctx, request)
	fmt.Println("first: ", d.Allowed, d.Remaining, d.Source)
	if err := first.Stop(ctx); err != nil { // sends the remaining cost
		panic(err)
	}

	d = second.Allow(ctx, request)
	fmt.Println("second:", d.Allowed, d.Remaining, d.Source)
	// Output:
	// first:  true 4 origin
	// second: false 4 origin
}
