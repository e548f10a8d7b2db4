package main

import (
	"fmt"
	"net"
	"net/http"
	"time"
)

// fake is a model. Its answers have as many words as max_tokens allows, at most words, with a pause before each word.
type fake struct {
	words int64
	pause time.Duration
	cutAt int64 // it dies after so many words; 0: never
}

func (f fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, err := read(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	said := int64(0)
	for said < min(f.words, p.MaxTokens) {
		if said == f.cutAt && said > 0 {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"word \"}}]}\n\n")
		if out.Flush() != nil {
			return
		}
		said++
		select {
		case <-r.Context().Done():
			return
		case <-time.After(f.pause):
		}
	}
	fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", p.estimate()+said)
}

// serveFake serves a model on a free port of this machine.
func serveFake() (url string, closes func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: fake{words: 200, pause: 20 * time.Millisecond}, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // ends with Close
	return "http://" + listener.Addr().String(), func() { _ = server.Close() }, nil
}
