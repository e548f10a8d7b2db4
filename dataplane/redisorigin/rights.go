package redisorigin

import (
	"maps"
	"regexp"
	"slices"
)

// Rights returns the rules of ACL SETUSER for the commands that an Origin runs, and no others: the
// commands of its scripts, of its client, and of checks of the server. The commands that only a
// Cluster needs come last. The user also needs the keys and channels that begin with
// Options.Prefix, for example ~weir:* and &weir:*.
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

// clientCommands are the commands that the client sends outside of scripts.
var clientCommands = []string{
	"auth", "client|setname", "hello", "ping", "select", // at the start of a connection
	"eval", "scan", "subscribe", "info",
}

// clusterCommands are further commands for the nodes of a Cluster.
var clusterCommands = []string{"cluster|info", "cluster|shards", "cluster|slots", "command", "readonly"}

// scriptCommands are the commands in scripts. Function lua collects them.
var scriptCommands = make(map[string]bool)

var scriptCall = regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)
