package nodecmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node"
)

// Program is weir-node under another name, with a further API: a program that replaces another limiter's server. It
// reads WEIR_ variables as weir-node does. It converts the other server's configuration to weir-node's flags and passes
// them to Main; these flags override other settings.
type Program struct {
	Name string // of the command: in its errors and in traces

	// API makes the API from the node's limiter; nil: there is no API.
	API func(*dataplane.Limiter) (*node.API, error)

	// Settings map weir-node's flags to the other server's settings, for errors about them.
	Settings map[string]string

	// CallsPublic lets other machines reach the ports for calls without authentication, for a server whose configuration
	// requests that. The port for operators still needs Config.InsecurePublic.
	CallsPublic bool

	// TLSVersionMin is the oldest version of TLS, as package tls numbers them; 0 is 1.2.
	TLSVersionMin uint16

	// GRPCConnectionAge is that of node.Config.
	GRPCConnectionAge time.Duration
}

// weirNode is the program without any other API.
var weirNode = Program{Name: "weir-node"}

func (p Program) api(limiter *dataplane.Limiter) (api *node.API, err error) {
	if p.API == nil {
		return api, nil
	}
	if api, err = p.API(limiter); err != nil {
		return nil, fmt.Errorf("make the API: %w", err)
	}
	return api, nil
}

// inItsWords returns an error about a flag with the other server's name for the flag.
func (p Program) inItsWords(fault string) string {
	for flag, theirs := range p.Settings {
		if says, ok := strings.CutPrefix(fault, flag); ok && strings.IndexAny(says, " :") == 0 {
			return theirs + says
		}
	}
	return fault
}
