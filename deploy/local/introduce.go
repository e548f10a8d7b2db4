package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/weirhq/weir/deploy/local/stack"
)

// introduce prints the running processes and commands to try. relays are the nodes that relay the regions.
func introduce(w io.Writer, s *stack.Stack, relays map[string]*stack.Node, data, bin string, took time.Duration) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	say("Weir runs: ready in %.1f s. Ctrl-C stops all of it.", took.Seconds())
	say("")
	for _, n := range s.Nodes {
		say("  node %-5s  %s   gRPC %s   metrics %s/metrics   %s", n.ID, n.URL(), n.GRPCAddr(), n.AdminURL(),
			role(n, relays[n.Region], s.HasMySQL(n.ID)))
	}
	say("  operators   %s/console/", s.API())
	say("  Restate     %s   (its own user interface)", s.Restate.AdminURL())
	say("  %-10s  %s, Redis %s", s.SQL.Engine.Title(), s.SQL.Addr(), redisList(s))
	say("  data, logs  %s", data)
	say("")
	say("Ask whether user_42 may pass, 10 a minute; repeat it until it may not:")
	say("")
	say("  curl -s %s/weir.v1.RateLimitService/Limit -H 'Content-Type: application/json' \\", s.Nodes[0].URL())
	say(`    -d '{"workspace":"acme","namespace":"api","identifier":"user_42","limit":10,"duration_ms":60000}'`)
	say("")
	say("The same by gRPC, on the port that Envoy's rate limit filter uses too:")
	say("")
	say(
		`  grpcurl -plaintext -d '{"workspace":"acme","namespace":"api","identifier":"user_42","limit":10,"duration_ms":60000}' \`)
	say("    %s weir.v1.RateLimitService/Limit", s.Nodes[0].GRPCAddr())
	say("")
	last := s.Nodes[len(s.Nodes)-1]
	say("Make the same call to %s: a second or two after its own first request of a key,", last.URL())
	say("%s counts what the other region accepted.", last.Region)
	say("")
	if relay := relays[s.Nodes[0].Region]; relay != nil {
		say("One node of a region carries its counts to MySQL and the other regions' back. Kill the one of %s,", relay.Region)
		say("and another takes over:")
		say("")
		say("  kill -9 %d", relay.PID())
		say("")
	}
	say("Or kill a server, such as the Redis of %s: decisions go on. Whatever you kill is started again after %v:",
		s.Nodes[0].Region, restartPause)
	say("")
	say("  kill -9 %d", s.Redis[s.Nodes[0].Region].PID())
	say("")
	weirctl := filepath.Join(bin, "weirctl")
	if here, err := os.Getwd(); err == nil {
		if short, err := filepath.Rel(here, weirctl); err == nil {
			weirctl = short
		}
	}
	say("Then look at the setup, the fleet and the durable cleanup:")
	say("")
	say("  %s doctor", weirctl)
	say("  %s fleet", weirctl)
	say("  %s cleanup status", weirctl)
	say("")
	say("For sign-ins, password resets, SMS and paid quotas, let no more than the limit pass in any real minute. A")
	say("caller at the limit then gets up to 9 %% less, or up to half less with a limit below 10:")
	say("")
	say(`  %s namespace set acme login --window precise --reason "no more guesses than the limit"`, weirctl)
	say("")
	say("And change how all of it counts, region by region, approved by you in the browser")
	say("(30s in \"Bakes for\" is enough here):")
	say("")
	say("  %s/console/rollouts/new", s.API())
}

func redisList(s *stack.Stack) (list string) {
	seen := ""
	for _, n := range s.Nodes {
		if n.Region != seen {
			seen = n.Region
			if list != "" {
				list += ", "
			}
			list += n.Region + " " + s.Redis[n.Region].Addr()
		}
	}
	return list
}
