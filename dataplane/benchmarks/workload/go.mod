module github.com/weirhq/weir/dataplane/benchmarks/workload

go 1.26.0
