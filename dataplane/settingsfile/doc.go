// Package settingsfile has the settings of limiters without MySQL: overrides, and the shadow mode, outage policy, mode
// and window of namespaces. They come from a file, or from a value of the program. Both have the document of package
// shared/settings/document, which weir-node reads and weirctl exports too.
//
//	file, err := settingsfile.Open("/etc/acme/limits.yaml")
//	if err != nil {
//		return err // names the file, the line, the field and its bound
//	}
//	limiter, err := dataplane.New(dataplane.Config{Region: "eu", Settings: file})
//	if err != nil {
//		return err
//	}
//	if err := limiter.RefreshSettings(ctx); err != nil { // in force from the first request on
//		return err
//	}
//
// Use it for a limiter in a single process, and for a region with Redis and without MySQL. In a region, give all nodes
// the same file and set dataplane.Config.RegionNodes, because no heartbeats count the nodes. With MySQL, operators
// change settings with weirctl instead, for all nodes at once and with an audit log.
package settingsfile
