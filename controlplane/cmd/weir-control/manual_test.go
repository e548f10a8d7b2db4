package main

import (
	"io"
	"testing"

	"github.com/weirhq/weir/shared/manual"
)

// weir-control accepts every command line of its own that a page shows.
func TestCommandsOfThePagesAreTaken(t *testing.T) {
	for _, example := range manual.Of(t, "weir-control") {
		args := example.Args()
		if len(args) > 0 && args[0] == identityArgument {
			if _, _, err := parseIdentity(args[1:], io.Discard, io.Discard); err != nil {
				t.Errorf("%s: %v", example, err)
			}
			continue
		}
		if len(args) > 0 && args[0] == migrateArgument {
			t.Setenv("WEIR_MYSQL_DSN", "weir@tcp(127.0.0.1:1)/weir")
			if _, _, _, err := parseMigration(args[1:], io.Discard, io.Discard); err != nil {
				t.Errorf("%s: %v", example, err)
			}
			continue
		}
		c, _, done, err := parse(args, io.Discard, io.Discard, "test")
		if err == nil && !done {
			err = c.validate()
		}
		if err != nil && !example.Forgives(err) {
			t.Errorf("%s: %v", example, err)
		}
		if len(example.Env) > 0 {
			t.Errorf("%s: nothing here looks whether these variables are read", example)
		}
	}
}
