#!/usr/bin/env bash
# Runs a command of the README as a newcomer to a Debian release would: in a fresh minimal root of it (debootstrap's
# minbase and the CA certificates, nothing else) with a copy of this tree, at the same path as here. Needs root.
#   scripts/fresh_root.sh [OPTION]… SUITE COMMAND…        e.g. scripts/fresh_root.sh trixie scripts/quickstart.sh
#
# SUITE: 12 or bookworm, 13 or trixie, testing, or another that debootstrap knows. The tree is what git would commit of
# it now. The exit code is the command's; 2 also says bad usage, or no right to make a root.
#   --include PKG,…    packages that the root has besides
#   --keep DIR         the root is made in DIR and stays there; a second call goes on in it, with a new copy of the tree
#   --bind FROM:TO     a folder of this machine, read-only (the CUDA toolkit); may be given more than once
#   --no-network       only a loopback interface
#   --ccache DIR       a compiler cache of this machine, for repeated runs
#   --cache DIR        where minimal roots are kept between calls; remove one to have it made anew
#                      (default ${XDG_CACHE_HOME:-~/.cache}/tandem/roots)
#   --mirror URL       where the packages are (default: where this machine's apt has Debian's)
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() {
    echo "scripts/fresh_root.sh: $1" >&2
    exit 2
}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tandem/roots
include="" keep="" ccache="" mirror="" binds=() namespaces=(--mount --pid --ipc --uts)
while [ $# -gt 0 ]; do
    case "$1" in
    -h | --help)
        sed -n '2,17s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    --no-network) namespaces+=(--net) && shift ;;
    --include | --keep | --bind | --ccache | --cache | --mirror)
        [ $# -ge 2 ] || refuse "$1 needs a value"
        if [ "$1" = --bind ]; then binds+=("$2"); else printf -v "${1#--}" '%s' "$2"; fi
        shift 2
        ;;
    -*) refuse "unknown option '$1'; known: --include, --keep, --bind, --no-network, --ccache, --cache, --mirror" ;;
    *) break ;;
    esac
done
[ $# -ge 2 ] || refuse "needs a suite and a command; see --help"
case "$1" in 12) suite=bookworm ;; 13) suite=trixie ;; *) suite=$1 ;; esac
shift
for bind in ${binds[@]+"${binds[@]}"}; do
    [[ "$bind" == /*:/* && -d "${bind%%:*}" ]] || refuse "--bind: '$bind' is not FROM:TO, two absolute paths of which the first is a folder here"
done
[ -z "$ccache" ] || [ -d "$ccache" ] || refuse "--ccache: there is no folder $ccache"
[ "$(id -u)" -eq 0 ] || refuse "needs root: debootstrap, chroot and mounts"
unshare "${namespaces[@]}" --fork true 2>/dev/null || refuse "no right to make namespaces (in a container: --privileged)"
command -v debootstrap >/dev/null || apt-get install -y -qq --no-remove debootstrap >/dev/null
[ -e "/usr/share/debootstrap/scripts/$suite" ] || refuse "debootstrap does not know the suite '$suite'"

# The parts and their times, printed at the end.
parts="" last=$SECONDS
note() {
    parts+="${parts:+, }$1 $((SECONDS - last)) s"
    last=$SECONDS
}

# 1. The minimal root, made once for each list of packages.
packages=ca-certificates${ccache:+,ccache}${include:+,$include}
base=$cache/$suite$(tr , '\n' <<<"$packages" | sort -u | grep -v '^ca-certificates$' | sed 's/^/+/' | tr -d '\n' || true)
# Proxies may be known to apt alone. The variables' names are what wget, apt and curl read.
eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
export http_proxy https_proxy
root=${keep:-$cache/run.$$}
mkdir -p "$cache"
for part in "$cache"/part.* "$cache"/run.*; do # of calls that were killed
    if [ -d "$part" ] && [ ! -d "/proc/${part##*.}" ]; then rm -rf --one-file-system "$part"; fi
done
child=""
clean_up() {
    [ -z "$child" ] || { kill -KILL "$child" && wait "$child"; } 2>/dev/null || true
    rm -rf --one-file-system "$cache/part.$$" "$cache/run.$$"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
if [ ! -d "$base" ] && [ ! -d "$root/usr" ]; then
    [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        sed -n 's/^Debian //p' | sort -u | head -1)
    [ -n "$mirror" ] || refuse "apt has no mirror of Debian here (or no lists yet: apt-get update): name one with --mirror"
    debootstrap --variant=minbase --include="$packages" "$suite" "$cache/part.$$" "$mirror" >"$cache/$suite.log" 2>&1 ||
        { tail -5 "$cache/$suite.log" >&2 && exit 1; }
    rm -f "$cache/part.$$"/var/cache/apt/archives/*.deb
    mv -T "$cache/part.$$" "$base" 2>/dev/null || [ -d "$base" ] # another call was faster
    note "minimal root"
fi
if [ ! -d "$root/usr" ]; then
    part=$(dirname "$root")/part.$$
    mkdir -p "$part"
    cp -a --reflink=auto "$base/." "$part"
    mv -T "$part" "$root"
    note "copy of it"
fi

# 2. What a newcomer's machine has of its network, and the tree.
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/90mirror" # mirrors may lag behind
tree=$PWD
mkdir -p "$root$tree"
find "$root$tree" -mindepth 1 -maxdepth 1 ! -name build ! -name runs -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard --deduplicate | while IFS= read -r -d '' file; do
    if [ -e "$file" ]; then printf '%s\0' "$file"; fi
done | tar -c --null -T - | tar -x --no-same-owner -C "$root$tree"
if [ -n "$ccache" ]; then
    binds+=("$(realpath "$ccache"):/root/.cache/ccache")
    mkdir -p "$root/root/.config/ccache"
    [ ! -e "$HOME/.config/ccache/ccache.conf" ] || cp "$HOME/.config/ccache/ccache.conf" "$root/root/.config/ccache/"
fi
note "tree"

# 3. The command, in namespaces of its own: with the first process of them all others and the mounts end. Should this
# script be killed, unshare goes with it.
environment=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "TERM=${TERM:-dumb}")
for variable in http_proxy https_proxy ftp_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [ -z "${!variable:-}" ] || environment+=("$variable=${!variable}")
done
inside() { # ROOT TREE BIND… -- COMMAND…
    set -eu
    root=$1 tree=$2
    shift 2
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    for device in null zero full random urandom tty; do
        touch "$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    mkdir "$root/dev/shm" "$root/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    ln -s pts/ptmx "$root/dev/ptmx"
    for link in fd:fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do ln -s "/proc/self/${link#*:}" "$root/dev/${link%%:*}"; done
    while [ "$1" != -- ]; do
        to=$root${1#*:}
        mkdir -p "$to"
        mount --bind "${1%%:*}" "$to"
        [ "${1#*:}" = /root/.cache/ccache ] || mount -o remount,bind,ro "$to"
        shift
    done
    shift
    ip link set lo up 2>/dev/null || true
    code=0
    chroot "$root" env -i -C "$tree" "$@" || code=$?
    exit $code
}
setpriv --pdeathsig KILL unshare "${namespaces[@]}" --fork --kill-child bash -c "$(declare -f inside); inside \"\$@\"" inside \
    "$root" "$tree" ${binds[@]+"${binds[@]}"} -- "${environment[@]}" "$@" <&0 &
child=$! # waited for, rather than run: bash minds a signal then
code=0
wait "$child" || code=$?
child=""
note "$*"
echo "fresh root of $suite: $parts; exit code $code, $(du -sm "$root" | cut -f1) MiB" >&2
exit $code
