# Two ranks in two network namespaces that share one link: namespaces.sh PROGRAM FILE. Runs inside the first namespace.
set -eu
program=$1
root_info=$2
# A file of an earlier run would send rank 1 to an address without a listener.
rm -f "$root_info"

# This process keeps the second namespace alive.
unshare --net sleep 600 &
other=$!
trap 'kill "$other"' EXIT
while [ "$(readlink "/proc/$other/ns/net")" = "$(readlink /proc/self/ns/net)" ]; do :; done

ip link add left type veth peer name right
ip link set right netns "$other"
ip address add 10.77.0.1/24 dev left
ip link set left up
nsenter --net --target "$other" ip address add 10.77.0.2/24 dev right
nsenter --net --target "$other" ip link set right up

"$program" 0 2 "$root_info" &
first=$!
nsenter --net --target "$other" "$program" 1 2 "$root_info"
wait "$first"
