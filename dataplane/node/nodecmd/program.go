package nodecmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node"
)

// Program is weir-node under another name, with one more API: a program that takes the place of another limiter's
// server. It reads WEIR_ variables as weir-node does; what it reads of the other server's configuration it hands to
// Main as weir-node's flags, which win.
type Program struct {
	Name string // of the command: in its errors and in traces

	// API makes the API from the node's limiter; nil: there is none.
	API func(*dataplane.Limiter) (*node.API, error)

	// Settings are the other server's names of flags, for errors about them.
	Settings map[string]string

	// CallsPublic lets other machines reach the ports for calls without authentication, because the other server's
	// configuration asks for that. The port for operators still needs Config.InsecurePublic.
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

// inItsWords is an error about a flag with the other server's name of it.
func (p Program) inItsWords(fault string) string {
	for flag, theirs := range p.Settings {
		if says, ok := strings.CutPrefix(fault, flag); ok && strings.IndexAny(says, " :") == 0 {
			return theirs + says
		}
	}
	return fault
}
