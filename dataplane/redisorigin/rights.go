package redisorigin

import (
	"maps"
	"regexp"
	"slices"
)

// Rights returns the rules of ACL SETUSER for the commands that an Origin runs, and no others: those of its scripts,
// those of the client, and those that look at the server's health. A Cluster needs some more, which come last. The user
// also needs the keys and channels that begin with Options.Prefix, for example ~weir:* and &weir:*.
func Rights(cluster bool) []string {
	commands := slices.Collect(maps.Keys(scriptCommands))
	for _, name := range clientCommands {
		if !slices.Contains(commands, name) {
			commands = append(commands, name)
		}
	}
	slices.Sort(commands)
	rules := []string{"-@all"}
	if cluster {
		commands = append(commands, clusterCommands...)
	}
	for _, name := range commands {
		rules = append(rules, "+"+name)
	}
	return rules
}

// clientCommands are sent outside of scripts.
var clientCommands = []string{
	"auth", "client|setname", "hello", "ping", "select", // as a connection begins
	"eval", "scan", "subscribe", "info",
}

// clusterCommands are sent to the nodes of a Cluster besides.
var clusterCommands = []string{"cluster|info", "cluster|shards", "cluster|slots", "command", "readonly"}

// scriptCommands are those that the scripts call. Func lua collects them.
var scriptCommands = make(map[string]bool)

var scriptCall = regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)
