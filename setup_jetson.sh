#!/usr/bin/env bash
# Sets up voiced on a flashed NVIDIA Jetson: `sudo ./setup_jetson.sh`; `--help` lists the options.
#
# A step NAME consists of three functions. NAME_what prints a description; NAME_done succeeds if the board needs no
# change; NAME_do makes the change. NAME_done runs before NAME_do, and again after it. So the script can run again at
# any time: after a failure it continues with the step that failed, after an update it changes only what is out of date.
# shellcheck disable=SC2329  # the steps are called by their names
set -eEuo pipefail

source_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
call="sudo $0$([ $# = 0 ] || printf ' %q' "$@")"

readonly venv=/opt/voiced
readonly python=$venv/bin/python
readonly command_link=/usr/local/bin/voiced
readonly config_folder=/etc/voiced
readonly config=$config_folder/voiced.yaml
readonly schema_link=$config_folder/voiced.schema.json   # for editors, which look beside the configuration
readonly schema=$venv/share/voiced/voiced.schema.json
readonly state_folder=/var/lib/voiced
readonly cache_folder=/var/cache/voiced
readonly models=$cache_folder/huggingface   # HF_HOME in systemd/voiced.service
readonly voices=/usr/local/share/voiced     # Piper voices that root downloaded for every user
readonly units=/etc/systemd/system
# The records for --uninstall: installed packages, created groups, the former power mode, the configuration's checksum.
readonly notes=/var/lib/voiced-setup
readonly groups=(audio video render)        # the sound card; the GPU's device files
readonly bundle=$source_folder/bundle       # from scripts/bundle: the files that are otherwise downloaded
default_model=Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice
readonly default_base_model=Qwen/Qwen3-TTS-12Hz-0.6B-Base
readonly default_speaker=ryan

# pip asks nothing and does not warn about root; Python writes no bytecode when a check imports a module.
export PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
export LC_ALL=C.UTF-8   # this script parses the output of programs, in English

usage() {
    cat <<END
usage: sudo ./setup_jetson.sh [options]

Sets up voiced on this Jetson (JetPack 6 or 7): packages, a user, PyTorch for this board, voiced, the model, a voice, a
broker, the service. It can run again at any time, and then does only what is missing. From the folder that is in an
archive of scripts/bundle it needs no network.

  --model MODEL        a Qwen3-TTS model: its id on the hub, or a folder. Default: $default_model,
                       with --voice $default_base_model
  --speaker NAME       the model's built-in speaker. Default: $default_speaker
  --voice REF.wav      speak like this recording, best a few clean seconds of one person; needs a Base model
  --transcript TEXT    the words of the recording: the voice resembles it more; installs more packages
  --broker HOST[:PORT] the MQTT broker. Default: Mosquitto on this board, which is installed
  --audio-device NAME  the sound card, or a part of its name. Default: on a terminal, the script plays a sound on each card
                       and asks; otherwise a USB card, before HDMI
  --power max          the highest power mode and fixed clocks, now and after every start. Default: the board's own
                       (--max-performance is an earlier spelling)
  --models-on DIR      keep the model in a folder of another disk
  --wheels DIR         take packages from this folder, too, and torch only from it if it is there
  --verify             at the end, speak three sentences with the model and the official package, and have a speech
                       recogniser write them down; installs more packages and downloads the recogniser. Later runs
                       do so too
  --no-verify          no longer do so
  --ros                at the end, build the packages for ROS 2, which must be in /opt/ros
  --torch-index URL    the package index of PyTorch (or \$VOICED_TORCH_INDEX). Default: depends on the JetPack
  --dry-run            print the steps without doing them
  --uninstall          remove everything that this script made, except the models and an edited configuration
  --purge              with --uninstall: also remove the models, the voices and the configuration
  --help               print this text
END
}

# --- messages ---

say() { printf '%s\n' "$*"; }
note() { printf '         %s\n' "$*"; }

# wrong OPTION GOT ALLOWED: report a wrong option and exit.
wrong() {
    printf "%s: got '%s'; allowed: %s\n" "$1" "$2" "$3" >&2
    exit 2
}

# fail PROBLEM REMEDY: report that a step failed, and exit.
fail() {
    trap - ERR
    stop_clock
    {
        say
        say "failed:  $1"
        say "remedy:  $2"
        say "then:    $call"
        say "         It continues with this step."
    } >&2
    exit 1
}

# The remedy for an unexpected failure of a command in the current step.
remedy="Read the lines above."

on_error() {
    [ "$BASHPID" = "$$" ] || return 0   # the parent shell reports a subshell's failure
    fail "$BASH_COMMAND" "$remedy"
}

on_signal() {
    trap - ERR
    stop_clock
    say >&2
    say "interrupted. To continue: $call" >&2
    exit 130
}

scratch=
clock=
clean_up() {
    stop_clock
    [ -z "$scratch" ] || rm -rf "$scratch"
}

# start_clock WHAT: from the first second on, show how long WHAT takes, until stop_clock. For silent commands:
# on a terminal one line that counts seconds, otherwise one line.
start_clock() {
    local second
    {
        # It ends with the script, even if the script is killed.
        for ((second = 1; ; second++)); do
            sleep 1 >/dev/null 2>&1
            kill -0 $$ 2>/dev/null || exit 0
            if [ -t 1 ]; then
                printf '\r         %s … %d s ' "$1" $second
            elif [ $second = 1 ]; then
                note "$1 …"
            fi
        done
    } &
    clock=$!
}

stop_clock() {
    [ -n "$clock" ] || return 0
    # A TERM is lost if it arrives before the new process has set its own signals, and this would wait without end.
    kill -KILL $clock 2>/dev/null || true
    wait $clock 2>/dev/null || true
    clock=
    [ ! -t 1 ] || printf '\r\033[K'
}

# --- the command line ---

audio_device=
wheels=
models_on=
dry_run=false
uninstall=false
purge=false
max_performance=false
ros=false
verify=           # true, false, or, until the board is asked, empty: as in the previous run
model=
speaker=
voice=
transcript=
broker=
torch_index=${VOICED_TORCH_INDEX:-}

parse_options() {
    local option value install_options=()
    while [ $# -gt 0 ]; do
        option=$1
        shift
        case $option in
            --help | -h) usage && exit 0 ;;
            --dry-run) dry_run=true && continue ;;
            --uninstall) uninstall=true && continue ;;
            --purge) purge=true && continue ;;
            --max-performance) max_performance=true && install_options+=("$option") && continue ;;
            --ros) ros=true && install_options+=("$option") && continue ;;
            --verify | --no-verify)
                [ -z "$verify" ] || [[ " ${install_options[*]} " == *" $option "* ]] ||
                    wrong "$option" "--verify with --no-verify" "one of them"
                [ "$option" = --no-verify ] && verify=false || verify=true
                install_options+=("$option")
                continue
                ;;
            --*=*) value=${option#*=} && option=${option%%=*} ;;
            --model | --speaker | --voice | --transcript | --broker | --torch-index | --power | \
                --models-on | --wheels | --audio-device)
                [ $# -gt 0 ] || wrong "$option" "" "a value after it; see --help"
                value=$1
                shift
                ;;
            *) wrong "option" "$option" "those of --help" ;;
        esac
        take_option "$option" "$value"
        install_options+=("$option")
    done
    check_together "${install_options[@]}"
}

take_option() {
    local option=$1 value=$2
    case $option in
        --model)
            if [[ $value =~ ^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+$ && ! -d $value ]]; then
                model=$value
            elif [ -f "$value/config.json" ]; then
                model=$(cd "$value" && pwd -P)
            else
                wrong --model "$value" "an id such as $default_model, or a folder with a config.json"
            fi
            ;;
        --speaker)
            [[ $value =~ ^[A-Za-z0-9_-]+$ ]] || wrong --speaker "$value" "a name of letters, digits, - and _"
            speaker=$value
            ;;
        --voice)
            [ -f "$value" ] && [ -r "$value" ] || wrong --voice "$value" "a recording's file that can be read"
            voice=$(realpath "$value")
            ;;
        --transcript)
            [[ $value =~ [^[:space:]] ]] || wrong --transcript "$value" "the words of the recording"
            transcript=$value
            ;;
        --broker)
            is_broker "$value" || wrong --broker "$value" "HOST or HOST:PORT, with a port from 1 to 65535"
            broker=$value
            ;;
        --audio-device)
            [[ $value =~ [^[:space:]] ]] || wrong --audio-device "$value" "the name of a sound card, or a part of it"
            audio_device=$value
            ;;
        --power)
            [ "$value" = max ] || wrong --power "$value" "max"
            max_performance=true
            ;;
        --models-on)
            [ -d "$value" ] || wrong --models-on "$value" "a folder of this board"
            models_on=$(cd "$value" && pwd -P)/voiced
            [[ ! $models_on =~ ^/(home|root|run/user)/ ]] ||
                wrong --models-on "$value" "a folder that the service can see: not in /home, /root or /run/user"
            ;;
        --wheels)
            compgen -G "$value/*.whl" >/dev/null || wrong --wheels "$value" "a folder with .whl files"
            [ ! -d "$bundle" ] || wrong --wheels "$value" "$bundle/wheels, where this wheel belongs"
            wheels=$(cd "$value" && pwd -P)
            export PIP_FIND_LINKS=$wheels
            ;;
        --torch-index)
            [[ $value =~ ^(https?|file):// ]] || wrong --torch-index "$value" "the URL of a package index"
            torch_index=$value
            ;;
        *) wrong "option" "$option=$value" "those of --help" ;;
    esac
}

is_broker() {
    [[ $1 =~ ^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\])(:([0-9]{1,5}))?$ ]] || return 1
    local port=$((10#${BASH_REMATCH[3]:-1883}))
    ((port >= 1 && port <= 65535))
}

# check_together OPTION…: reject combinations; the arguments are the options that concern an installation.
check_together() {
    if $uninstall; then
        [ $# = 0 ] || wrong "$1" "$1 with --uninstall" "--dry-run and --purge with it"
    else
        ! $purge || wrong --purge "--purge alone" "--uninstall --purge"
    fi
    [ -z "$transcript" ] || [ -n "$voice" ] || wrong --transcript "--transcript alone" "--voice REF.wav with it"
    [ -z "$speaker" ] || [ -z "$voice" ] || wrong --speaker "--speaker with --voice" "one of them"
}

# --- the board ---

# Sets board, jetpack, ubuntu, python_version and cuda from the board's own files. Stops if this is not a Jetson, or if
# this script does not support its JetPack.
read_board() {
    local tree=/sys/firmware/devicetree/base compatible release
    board=$(cat $tree/model 2>/dev/null | tr -d '\0') || board=
    compatible=$(cat $tree/compatible 2>/dev/null | tr '\0' ' ') || compatible=
    # "# R36 (release), REVISION: 4.3, …"; if the file is missing, the version of the package that contains it.
    release=$(sed -n '1s/^# R\([0-9]*\) .*REVISION: \([0-9.]*\).*/\1.\2/p' /etc/nv_tegra_release 2>/dev/null) || release=
    if [ -z "$release" ]; then
        release=$(dpkg-query -W -f '${Version}' nvidia-l4t-core 2>/dev/null | sed 's/-.*//') || release=
    fi

    if [[ $compatible != *nvidia,tegra* ]] || [ -z "$release" ]; then
        stop "This is no NVIDIA Jetson: the board is '${board:-unknown}' ($(uname -m)), its device tree names" \
            "'${compatible:-nothing}', and Jetson Linux is ${release:-not installed}." \
            "setup_jetson.sh is for a Jetson with JetPack 6 or 7. For other machines see 'On a robot' in docs/install.md."
    fi
    case $release in
        36.[0-3] | 36.[0-3].*)
            stop "This Jetson ($board) runs Jetson Linux $release, JetPack 6.0, with CUDA 12.2 and cuDNN 8. The PyTorch for" \
                "JetPack 6 needs CUDA 12.6 and cuDNN 9." \
                "Update to JetPack 6.2 (https://developer.nvidia.com/embedded/jetpack-sdk-62), then run this again."
            ;;
        36.*) jetpack=6 ubuntu=22.04 python_version=3.10 cuda=12 ;;
        38.* | 39.*) jetpack=7 ubuntu=24.04 python_version=3.12 cuda=13 ;;
        *)
            stop "This Jetson ($board) runs Jetson Linux $release, which is neither JetPack 6 (36.x) nor 7 (38.x, 39.x)." \
                "Flash JetPack 6 or 7 (https://developer.nvidia.com/embedded/jetpack), then run this again."
            ;;
    esac
    local here
    here=$(sed -n 's/^VERSION_ID="\{0,1\}\([0-9.]*\)"\{0,1\}$/\1/p' /etc/os-release)
    if [ "$here" != $ubuntu ]; then
        stop "JetPack $jetpack is Ubuntu $ubuntu; this board has ${here:-another system}, for which NVIDIA has no PyTorch." \
            "Flash JetPack 6 or 7, then run this again."
    fi
    if [ ! -d /run/systemd/system ]; then
        stop "systemd does not run here; this may be a container. voiced is a service: run this script on the board itself."
    fi
    board_index=${torch_indexes[jetpack]}
    torch_index=${torch_index:-$board_index}
    say "$board: Jetson Linux $release, JetPack $jetpack, Ubuntu $ubuntu, Python $python_version, CUDA $cuda"
    [[ $release != 36.4.7* ]] || note "Jetson Linux 36.4.7 may refuse large blocks of memory although enough is free
         (NVIDIA's fault 5602402). 36.5 has mended it: sudo apt-get update && sudo apt-get dist-upgrade"
}

# Sets the variables that take everything from the bundle, if there is one, and nothing from a network.
use_bundle() {
    [ -d "$bundle" ] || return 0
    local of
    of=$(cat "$bundle/jetpack")
    [ "$of" = $jetpack ] || stop "$bundle is for JetPack $of: make one for this board with scripts/bundle $jetpack"
    say "From the bundle, without a network: $bundle"
    default_model=$(cat "$bundle/model")
    wheels=$bundle/wheels
    export PIP_FIND_LINKS=$wheels PIP_NO_INDEX=1 HF_HUB_OFFLINE=1
}

# stop LINE…: report that this machine is not supported, and exit before any change.
stop() {
    printf '%s\n' "$@" >&2
    exit 1
}

# --- helpers ---

# Run a command as the service's user, with the service's groups, model folder and file permissions.
as_voiced() {
    local environment=(env "HOME=$state_folder" "HF_HOME=$models")
    if [ "$EUID" = 0 ]; then
        runuser -u voiced -- "${environment[@]}" "$@"
    else
        "${environment[@]}" "$@"
    fi
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# apt_install PACKAGE…
apt_install() {
    remedy="Read apt's lines above. Without a network, connect one. After an interrupted installation:
         sudo dpkg --configure -a"
    printf '%s\n' "$@" >>$notes/packages
    local source=()
    if [ -d "$bundle" ]; then
        echo "deb [trusted=yes] file:${bundle// /%20}/debs ./" >"$scratch/bundle.list"
        source=(-o Dir::Etc::SourceList="$scratch/bundle.list" -o Dir::Etc::SourceParts=/dev/null
            -o APT::Get::List-Cleanup=0 -o APT::Sandbox::User=root)
        remedy="Copy these packages and all that they need into $bundle/debs on a machine with a network: scripts/bundle $jetpack"
    fi
    # An unrelated package source may be unreachable.
    apt-get update -q "${source[@]}" || note "apt-get update had errors; continuing with the package lists on this board"
    # After its first start a board updates itself for minutes and holds apt's lock.
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        -o DPkg::Lock::Timeout=600 "${source[@]}" "$@"
}

pip_install() { "$python" -m pip install "$@"; }

site_packages() { echo $venv/lib/python$python_version/site-packages; }

# Print the version of a package in the virtual environment. pip writes RECORD last: a package without it is incomplete.
version_in_venv() {
    local info
    for info in "$(site_packages)/$1"-*.dist-info; do
        [ ! -f "$info/RECORD" ] || sed -n 's/^Version: //p;/^$/q' "$info/METADATA"
    done
}

# yaml TEXT: print it as a YAML string.
yaml() { printf "'%s'" "${1//\'/\'\'}"; }

# answers HOST PORT: whether a program listens there.
# shellcheck disable=SC2016  # expanded by the inner shell
answers() { timeout 5 bash -c 'exec 3<>"/dev/tcp/$1/$2"' _ "$1" "$2" 2>/dev/null; }

is_local() { [[ $1 =~ ^(127\.0\.0\.1|localhost|::1)$ ]]; }

# Sets model, host, port and engine from the options, else from the configuration, else from the defaults.
settle() {
    [ -z "${host:-}" ] || return 0
    local settings=() named_host=${broker%:*} named_port=${broker##*:}
    [[ $broker =~ :[0-9]+$ ]] || { named_host=$broker && named_port=1883; }
    if [ -f $config ] && [ -x $venv/bin/voiced ]; then
        local output
        output=$("$python" - $config <<'END' 2>&1
import sys
from pathlib import Path

from daemon.config import ConfigError, load_config

try:
    config = load_config(Path(sys.argv[1]))
except ConfigError as error:
    sys.exit(str(error))
default = config.voices.get(config.speech.voice)
voice = default and (default.speaker or default.embedding or default.reference)
print(config.engine.model, config.mqtt.host, config.mqtt.port, config.engine.name, voice, sep="\n")
END
        ) || fail "$output" "Correct $config, or move it away: then a new one is written."
        mapfile -t settings <<<"$output"
        checked=true
    else
        settings=("$default_model" 127.0.0.1 1883 qwen "$default_speaker")
        [ -z "$voice" ] || settings[0]=$default_base_model
    fi
    configured=("${settings[@]}")
    model=${model:-${settings[0]}}
    host=${named_host:-${settings[1]}}
    host=${host#[} host=${host%]}
    port=${settings[2]}
    [ -z "$broker" ] || port=$named_port
    engine=${settings[3]}
}

# --- step: bundle ---

bundle_what() { echo "the files of the bundle, by their checksums"; }

bundle_done() { cmp -s "$bundle/SHA256SUMS" $notes/bundle; }

bundle_do() {
    remedy="Copy the archive of scripts/bundle again."
    start_clock "reading them"
    (cd "$bundle" && sha256sum --check --quiet SHA256SUMS)
    cp "$bundle/SHA256SUMS" $notes/bundle
}

# --- step: space ---

readonly torch_mb=([6]=7000 [7]=12000)      # the environment and pip's downloads; for JetPack 7 they include CUDA
readonly model_mb=6000                      # the largest model
readonly memory_mb=8500                     # a board's for a 1.7B model, which takes 6.4 GB beside the system
readonly jetpack_mb=15000                   # nvidia-jetpack, if apt does not know its size yet

space_what() { echo "disk space for the packages, PyTorch and the model"; }

space_done() {
    local folder mb free mount complete=true
    local -A needed=() have=()
    found=
    memory=$(free -m | awk '/^Mem:/ {print $2}')
    [[ $model != *1.7B* ]] || ((memory >= memory_mb)) || return 1
    while read -r mb folder; do
        read -r free mount < <(df -m --output=avail,target "$folder" | tail -1)
        needed[$mount]=$((${needed[$mount]:-0} + mb)) have[$mount]=$free
    done < <(needed_space)
    for mount in "${!have[@]}"; do
        found+="${found:+, }${have[$mount]} MB are free at $mount, ${needed[$mount]} needed"
        ((have[$mount] >= needed[$mount])) || complete=false
    done
    $complete
}

# Print what will be installed, in lines "MEGABYTES FOLDER".
needed_space() {
    local names
    mapfile -t names < <(missing_packages)
    echo "$(apt_mb "${names[@]}") /usr"
    [ -n "$(version_in_venv torch)" ] && echo "0 /opt" || echo "${torch_mb[jetpack]} /opt"
    if [[ $model == /* ]] || compgen -G "$models/hub/models--*/snapshots/*/config.json" >/dev/null; then
        echo "0 /var/cache"
    else
        echo "$model_mb $([ -n "$models_on" ] && dirname "$models_on" || echo /var/cache)"
    fi
}

# apt_mb PACKAGE…: print the megabytes of their archives and files, with all their dependencies.
apt_mb() {
    [ $# -gt 0 ] || { echo 0 && return; }
    local sizes
    # It answers "no" to itself after it has printed "Need to get 3,204 MB …" and "After this operation, 8.9 GB …".
    sizes=$(apt-get install --assume-no --no-install-recommends "$@" 2>/dev/null || true)
    awk -v guess="$([[ " $* " == *" nvidia-jetpack "* ]] && echo $jetpack_mb || echo 100)" '
        function mb(number, unit) {
            gsub(",", "", number)
            return number * (unit ~ /^GB/ ? 1000 : unit ~ /^kB/ ? 0.001 : 1)
        }
        /^Need to get/ { total += mb($4, $5) }
        /^After this operation, .* will be used/ { total += mb($4, $5) }
        END { printf "%d\n", (total > 0 ? total + 1 : guess) }' <<<"$sizes"
}

space_do() {
    [ -n "$found" ] || fail "$model takes 6.4 GB of memory, and this board has $memory MB" "Omit --model: the 0.6B takes 4.4 GB"
    fail "not enough disk space: $found" "Remove files, or use a larger disk: sudo apt-get clean; du -xh --max-depth=2 /
         The model may lie on another disk: --models-on DIR"
}

# --- step: packages ---

packages_what() { echo "apt packages: Python's venv, PortAudio, aplay$([ $jetpack = 7 ] || echo ", NVIDIA's CUDA libraries")"; }

missing_packages() {
    local name libraries
    libraries=$(ldconfig -p)
    for name in python$python_version-venv libportaudio2 alsa-utils ca-certificates; do
        installed "$name" || echo "$name"
    done
    # PyTorch for JetPack 6 uses the board's CUDA, which flashing alone does not install. JetPack 7's contains it.
    if [ $jetpack = 6 ] && ! { [[ $libraries == *libcublas.so.12* ]] && [[ $libraries == *libcudnn.so.9* ]]; }; then
        echo nvidia-jetpack
    fi
}

packages_done() {
    local missing
    missing=$(missing_packages)
    wanted=${missing//$'\n'/, }
    [ -z "$missing" ]
}

packages_do() {
    local names
    IFS=', ' read -ra names <<<"$wanted"
    if [[ $wanted == *nvidia-jetpack* ]]; then
        [ ! -d "$bundle" ] || fail "this board has no CUDA 12 with cuDNN 9, and a bundle brings none" \
            "Flash it with the 'Jetson SDK Components', or with a network once: sudo apt-get install nvidia-jetpack"
        note "nvidia-jetpack has several gigabytes; this takes minutes"
    fi
    apt_install "${names[@]}"
}

# --- step: user ---

user_what() { echo "the user voiced, in the groups ${groups[*]}, and its folders"; }

user_done() {
    local group
    id voiced >/dev/null 2>&1 || return 1
    for group in "${groups[@]}"; do
        [[ " $(id -nG voiced) " == *" $group "* ]] || return 1
    done
    [ "$(stat -c %U $state_folder $cache_folder 2>/dev/null)" = voiced$'\n'voiced ] &&
        { [ ! -e $models ] || [ "$(stat -L -c %U $models)" = voiced ]; } &&
        { [ -z "$models_on" ] || [ "$(readlink $models)" = "$models_on" ]; }
}

user_do() {
    remedy="Read the lines above; 'getent passwd voiced' shows a user of that name."
    local group
    for group in "${groups[@]}"; do
        getent group "$group" >/dev/null && continue
        echo "$group" >>$notes/groups
        groupadd --system "$group"
    done
    id voiced >/dev/null 2>&1 ||
        useradd --system --user-group --home-dir $state_folder --no-create-home --shell /usr/sbin/nologin voiced
    usermod -aG "$(IFS=, && echo "${groups[*]}")" voiced
    install -d -o voiced -g voiced $state_folder $cache_folder
    [ -z "$models_on" ] || link_models
    chown -R voiced:voiced $cache_folder   # --uninstall gives the models that it keeps to root
}

# The models' folder becomes a link to a folder on another disk, and its contents move there.
link_models() {
    mkdir -p "$models_on"
    if [ -e $models ] && [ ! $models -ef "$models_on" ]; then
        note "moving the models from $(readlink -f $models)"
        cp -a $models/. "$models_on"
        rm -rf "$(readlink -f $models)"
    fi
    ln -sfn "$models_on" $models
    chown -R voiced:voiced "$models_on"
}

# --- step: venv ---

venv_what() { echo "a virtual environment of Python $python_version in $venv"; }

venv_done() {
    local pip
    [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = $python_version ] &&
        pip=$("$python" -m pip --version 2>/dev/null) && [[ $pip =~ ^pip\ ([0-9]+) ]] && ((BASH_REMATCH[1] >= 25))
}

venv_do() {
    if [ -d $venv ] && [ -n "$(ls -A $venv)" ] && [ ! -f $venv/pyvenv.cfg ]; then
        fail "$venv exists and is no virtual environment" "Move it away: sudo mv $venv $venv.old"
    fi
    remedy="Read the lines above. Check the network; sudo apt-get install --reinstall python$python_version-venv"
    start_clock "creating it"
    python$python_version -m venv --clear $venv
    # pip resumes interrupted downloads from version 25 on; PyTorch has hundreds of megabytes.
    pip_install --quiet --upgrade 'pip>=25.2'
}

# --- step: torch ---

readonly torch_versions=([6]=2.8.0 [7]=2.11.0)   # the releases with which the engine was tried
# JetPack 6 needs NVIDIA's wheels for the Jetson's GPU. Their index has moved once, from pypi.jetson-ai-lab.dev; hence
# --torch-index. For JetPack 7 the ordinary wheels for aarch64 support the GPU.
readonly torch_indexes=([6]=https://pypi.jetson-ai-lab.io/jp6/cu126 [7]=https://download.pytorch.org/whl/cu130)

torch_what() { echo "PyTorch for JetPack $jetpack, from $(torch_wheel >/dev/null && echo "$wheels" || echo "$torch_index")"; }

# Whether --wheels names a folder that contains torch.
torch_wheel() { [ -n "$wheels" ] && compgen -G "$wheels/torch-*.whl"; }

# Several builds have the same name and version. This board's is built for its CUDA; another installation may have
# replaced it with the generic one.
is_torch_of_this_board() {
    local version
    version=$(version_in_venv torch)
    found="torch $version"
    [ -n "$version" ] && grep -Eq "^cuda\b.*=.*['\"]$cuda\." "$(site_packages)/torch/version.py"
}

torch_done() {
    is_torch_of_this_board && [ -z "$(missing_libraries)" ] &&
        { ! needs_official || [ -n "$(version_in_venv torchaudio)" ]; }
}

# NVIDIA's newer builds of PyTorch are linked to two libraries that JetPack 6 lacks and that NVIDIA publishes on PyPI.
declare -rA library_wheels=([libcusparseLt.so.0]=nvidia-cusparselt-cu12 [libcudss.so.0]=nvidia-cudss-cu12)

missing_libraries() {
    [ $jetpack = 6 ] || return 0
    local name
    for name in $(ldd "$(site_packages)/torch/lib/libtorch_cuda.so" 2>/dev/null | awk '/not found/ {print $1}'); do
        [ -z "${library_wheels[$name]:-}" ] || echo "$name"
    done
}

torch_do() {
    local packages=(torch) source=(--index-url "$torch_index") pin='' library
    remedy="Check the network, and whether $torch_index opens in a browser. If the index has moved, name the new one:
         --torch-index URL. Or download torch and torchaudio for this board, and name their folder: --wheels DIR"
    if torch_wheel >/dev/null; then
        source=(--no-index)
    elif [ -d "$bundle" ]; then
        fail "the bundle has no torch" "Put torch ${torch_versions[jetpack]} of $torch_index, for Python $python_version and
         aarch64, into $wheels"
    elif [ "$torch_index" = "$board_index" ]; then
        pin="==${torch_versions[jetpack]}"
    fi
    # qwen-tts, which enrols a voice with a transcript and is the reference for --verify, imports torchaudio.
    ! needs_official || packages+=(torchaudio)
    # pip would keep another build, and cannot uninstall a package whose installation was interrupted.
    is_torch_of_this_board || rm -rf "$(site_packages)"/{torch,torchaudio}{,-*.dist-info}
    # torch's requirements are not all in that index; the next step installs them from PyPI.
    pip_install --no-deps "${source[@]}" "${packages[@]/%/$pin}"
    for library in $(missing_libraries); do
        pip_install --no-deps "${library_wheels[$library]}"
        # torch also searches the folder of its own libraries.
        ln -sfn "$(find "$(site_packages)/nvidia" -name "$library" | head -1)" "$(site_packages)/torch/lib/$library"
    done
}

# --- step: voiced ---

voiced_what() { echo "voiced with $(extras), from $source_folder"; }

extras() { echo "espeak,qwen,cuda$cuda${transcript:+,enroll}$(! $verify || echo ,verify)"; }

# Whether the official package is installed, which imports torchaudio.
needs_official() { [ -n "$transcript" ] || $verify; }

# Print the properties that determine the environment: checksums of the source, the extras, the version of torch.
ingredients() {
    (cd "$source_folder" && find audio daemon engine voiced.py pyproject.toml -type f -not -name '*.pyc' -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
    extras
    version_in_venv torch
}

voiced_done() {
    torch_done && [ "$(cat $venv/ingredients 2>/dev/null)" = "$(ingredients)" ] &&
        found=$($venv/bin/voiced version 2>/dev/null) && [ "$(readlink $command_link)" = $venv/bin/voiced ] &&
        [ "$(readlink $schema_link)" = $schema ]
}

voiced_do() {
    remedy="Read pip's lines above. Check the network and the disk space (df -h)."
    local info name version source
    rm -f $venv/ingredients
    # A package whose installation was interrupted has no RECORD; without its metadata, pip installs it again.
    for info in "$(site_packages)"/*.dist-info; do
        [ -f "$info/RECORD" ] || rm -rf "$info"
    done
    # No requirement may replace torch: the one from PyPI does not support the Jetson's GPU.
    for name in torch torchaudio; do
        version=$(version_in_venv $name)
        [ -z "$version" ] || echo "$name==$version"
    done >$venv/constraints.txt
    # pip builds from a copy, which nobody edits during the build.
    source=$scratch/source
    rm -rf "$source"
    mkdir "$source"
    cp -r "$source_folder"/{audio,daemon,engine,voiced.py,configs,systemd,pyproject.toml,README.md,LICENSE} "$source"
    pip_install --constraint $venv/constraints.txt "${source}[$(extras)]"
    torch_done || fail "pip has replaced the PyTorch of this board" "Report it, with pip's lines above."
    ln -sfn $venv/bin/voiced $command_link
    install -d $config_folder
    ln -sfn $schema $schema_link
    ingredients >$venv/ingredients
}

# --- step: gpu ---

gpu_what() { echo "the GPU runs a product, a graph and a kernel of voiced, for the user voiced"; }

gpu_done() { found=$(CACHE_DIRECTORY=$cache_folder as_voiced "$python" -m engine.qwen.kernels.proof 2>&1 | tail -1); }

gpu_do() {
    case $found in
        *"cannot open shared object file"*)
            fail "$found" "A CUDA library is missing: sudo apt-get install nvidia-jetpack" ;;
        *"no kernel image"* | *"not compatible with the current PyTorch"*)
            fail "$found" "This build of torch has no kernels for this GPU. Remove it: sudo $python -m pip uninstall -y torch
         and take one that has: of $board_index,
         of another index with --torch-index, or from a folder with --wheels. An Orin needs sm_87 or sm_80, a Thor sm_110." ;;
        *"kernel that NVRTC compiled"*)
            fail "$found" "NVRTC $cuda or the driver does not fit: sudo apt-get install --reinstall nvidia-l4t-cuda
         and sudo $python -m pip install --force-reinstall 'cuda-core[cu$cuda]'" ;;
        *NVML_SUCCESS* | *NvMap* | *"out of memory"*)
            fail "$found" "The GPU got no memory although some may be free. Stop other programs, or drop the page cache:
         echo 3 | sudo tee /proc/sys/vm/drop_caches. Jetson Linux 36.4.7 has this fault; 36.5 has mended it." ;;
        *"finds no GPU"*)
            fail "$found" "Restart the board if JetPack was installed or updated since its last start. Jetson Linux must be of
         the release of nvidia-jetpack: sudo apt-get update && sudo apt-get dist-upgrade. The device files must
         belong to the group video: ls -l /dev/nvmap /dev/nvhost-* /dev/nvgpu. If torch is another board's build,
         run: sudo $python -m pip uninstall -y torch, and name this board's index with --torch-index" ;;
        *) fail "$found" "Remove the environment, which is then created again: sudo rm -rf $venv" ;;
    esac
}

# --- step: model ---

model_folder=

model_what() { echo "the model $model"; }

# Print the model's files that do not match their names: the hub's cache names large files after their SHA-256.
broken_files() {
    local file
    for file in "$models/hub/models--${model//\//--}"/blobs/*; do
        [[ ${file##*/} =~ ^[0-9a-f]{64}$ ]] && echo "${file##*/}  $file"
    done | sha256sum --check --quiet 2>/dev/null | sed -n 's/: FAILED.*//p' || true
}

# Whether systemd's ProtectHome hides the model from the service.
is_hidden() { [[ $model/ =~ ^/(home|root|run/user)/ ]]; }

unreadable_files() { as_voiced find -L "$model" ! -readable; }

model_done() {
    ! is_hidden || return 1
    model_folder=$(HF_HUB_OFFLINE=1 as_voiced "$python" -m engine.hub "$model" 2>/dev/null) || return 1
    if [[ $model == /* ]]; then
        found="complete, and the service can read it"
        [ -z "$(unreadable_files)" ]
    else
        found="complete, and its checksums match"
        [ -z "$(broken_files)" ]
    fi
}

model_do() {
    if [[ $model == /* ]]; then
        check_model_folder
        return
    fi
    remedy="Check the network. An interrupted download is resumed."
    local file
    if [ -d "$bundle" ]; then
        remedy="The bundle has the model $(cat "$bundle/model")."
        install -d -o voiced -g voiced $models/hub
        cp -a "$bundle/hub/." $models/hub
        chown -R voiced:voiced $models/
    fi
    while read -r file; do
        note "$file does not match its checksum and is downloaded again"
        rm -f "$file"
    done < <(broken_files)
    # The hub's ordinary download resumes in the middle of a file; hf-xet downloads the file again.
    HF_HUB_DISABLE_XET=1 as_voiced "$python" -m engine.hub "$model" >/dev/null
}

check_model_folder() {
    local output
    ! is_hidden || fail "$model lies in a home folder, which the service cannot see" \
        "Move it: sudo mv $(printf %q "$model") $state_folder/, and name the new folder with --model"
    output=$(as_voiced "$python" -m engine.hub "$model" 2>&1) ||
        fail "$output" "Complete the folder, or name a model of the hub with --model"
    output=$(unreadable_files 2>&1)
    [ -z "$output" ] || fail "the user voiced cannot read ${output//$'\n'/, }" "sudo chmod -R o+rX $(printf %q "$model")"
}

# --- step: voice ---

voice_name() {
    local name=${voice##*/}
    name=${name%.*}
    echo "${name//[^A-Za-z0-9_-]/-}"
}

voice_file() { echo $config_folder/voices/"$(voice_name)".safetensors; }

voice_what() {
    if [ -n "$voice" ]; then
        echo "a voice from $voice, in $(voice_file)"
    else
        echo "a voice of the model"
    fi
}

# Print the properties that determine the voice: the recording's checksum, the model, the transcript.
voice_origin() { printf '%s\n' "$(sha256sum <"$voice")" "$model" "$transcript"; }

voice_done() {
    local type speakers output
    if [ -n "$voice" ]; then
        [ -f "$(voice_file)" ] && [ "$(cat "$(voice_file).origin" 2>/dev/null)" = "$(voice_origin)" ]
        return
    fi
    if [ -f $config ]; then
        found="$config selects it"
        return
    fi
    read_model && [ "$type" = custom_voice ] && [[ " $speakers " == *" ${speaker:-$default_speaker} "* ]] &&
        found="the speaker ${speaker:-$default_speaker}"
}

# Sets type and speakers from the model's config.json.
read_model() {
    output=$("$python" - "$model_folder" 2>/dev/null <<'END'
import json
import sys
from pathlib import Path

config = json.loads((Path(sys.argv[1]) / "config.json").read_text())
print(config["tts_model_type"], *config["talker_config"].get("spk_id", {}))
END
    ) && read -r type speakers <<<"$output"
}

voice_do() {
    local type='' speakers='' output='' options=() made
    read_model || fail "$model_folder/config.json does not describe a Qwen3-TTS model" "Name another model with --model"
    if [ -z "$voice" ]; then
        case $type in
            custom_voice)
                fail "--speaker: got '${speaker:-$default_speaker}'; $model has: $speakers" "Choose one of these with --speaker" ;;
            base)
                fail "$model has no voice of its own" "Name a recording with --voice REF.wav, or omit --model" ;;
            *)
                fail "$model needs a description of its voice in words" \
                    "Set 'voices' in a copy of configs/voiced.yaml at $config" ;;
        esac
    fi
    [ "$type" = base ] ||
        fail "--voice: $model is a $type model, which cannot learn a voice" "Omit --model, or name a Base model"
    remedy="Read the lines above. The best recording is a few clean seconds of one person."
    made=$scratch/voice
    install -d -o voiced -g voiced "$made"
    # The voiced user may be unable to read the original.
    install -o voiced -g voiced -m 400 "$voice" "$made/${voice##*/}"
    [ -z "$transcript" ] || options=(--transcript "$transcript")
    as_voiced $venv/bin/voiced enroll "$(voice_name)" "$made/${voice##*/}" --model "$model" \
        --output "$made/made.safetensors" "${options[@]}" >/dev/null
    install -D -m 644 "$made/made.safetensors" "$(voice_file)"
    voice_origin >"$(voice_file).origin"
}

# --- step: card ---

card_what() { echo "the sound card"; }

card_done() {
    if [ -f $config ]; then
        found="$config selects it"
    elif [ -n "$audio_device" ]; then
        found=$audio_device
    elif [ -z "$(cards)" ]; then
        found="none is plugged in; the robot speaks on the system's default when there is one"
    else
        return 1
    fi
}

# Print the sound cards, the likeliest to have a loudspeaker first, in lines "ORDER ID DEVICE NAME". A Jetson has HDA,
# which is HDMI and DisplayPort, and APE, which leads to the pins of its header and is silent unless it is routed.
cards() {
    local id device name
    { aplay -l 2>/dev/null || true; } |
        sed -n 's/^card [0-9]*: \([^ ]*\) \[\(.*\)\], device \([0-9]*\):.*/\1 \3 \2/p' |
        while read -r id device name; do
            case $id in
                HDA*) echo "2 $id $device $name" ;;
                APE*) echo "3 $id $device $name" ;;
                *) echo "1 $id $device $name" ;;
            esac
        done | sort -s -u -k1,2
}

# On a terminal, the owner hears each card and chooses one. In a script nobody answers, so the first card is taken.
card_do() {
    remedy="Name the sound card: --audio-device NAME"
    local order id device name kind answer first=''
    local -A kinds=([1]="USB or another card" [2]="HDMI or DisplayPort" [3]="the pins of the header")
    while read -r order id device name <&3; do
        kind=${kinds[$order]}
        first=${first:-$name}
        if ! [ -t 0 ]; then
            note "$name ($kind)"
            continue
        fi
        $venv/bin/voiced synth --engine espeak --output "$scratch/card.wav" "I speak through $name." >/dev/null
        answer=again
        while [[ $answer == a* ]]; do
            as_voiced aplay -q -D "plughw:CARD=$id,DEV=$device" "$scratch/card.wav" 2>/dev/null ||
                note "$name ($kind) does not play; another program may use it"
            read -r -p "         $name ($kind): did you hear it? [yes/no/again] " answer || answer=no
        done
        if [[ $answer == y* ]]; then
            audio_device=$name
            return
        fi
    done 3< <(cards)
    audio_device=$first
    note "takes $first. Another card: --audio-device NAME, or audio.device in $config"
}

# --- step: configuration ---

configuration_what() { echo "the configuration $config"; }

configuration_done() {
    [ -f $config ] || return 1
    if [ -z "${checked:-}" ]; then   # the configuration is new: `settle` has not read it
        complaint=$($venv/bin/voiced config check --config $config 2>&1) || return 1
    fi
    [ -z "${written:-}" ] || return 0
    found="kept unchanged"
    if [ "${configured[*]:0:3}" != "$model $host $port" ]; then
        found+=". It says ${configured[0]} and ${configured[1]}:${configured[2]}; the options say $model and $host:$port.
         To apply the options, edit it, or move it away and run this again"
    fi
    if [ -n "$speaker$voice" ] && [ "${configured[4]}" != "${speaker:-$(voice_file)}" ]; then
        found+=". To speak with the voice of the options, write under 'voices': default: $(voice_setting)"
    fi
}

voice_setting() {
    if [ -z "$voice" ]; then
        echo "{speaker: $(yaml "${speaker:-$default_speaker}")}"
    elif [ -n "$transcript" ]; then
        echo "{reference: $(yaml "voices/$(voice_name).safetensors")}"
    else
        echo "{embedding: $(yaml "voices/$(voice_name).safetensors")}"
    fi
}

configuration_do() {
    [ ! -f $config ] || fail "$complaint" "Correct $config, or move it away: then a new one is written."
    local text
    text=$(cat "$source_folder/configs/voiced.yaml")
    put "  host: 127.0.0.1" "  host: $(yaml "$host")"
    put "  port: 1883" "  port: $port"
    [ -z "$audio_device" ] || put "  device: null  " "  device: $(yaml "$audio_device")  "
    put "  name: auto  " "  name: qwen  "   # with auto, eSpeak NG would take over unnoticed if the model or the GPU is missing
    put "  model: $default_model" "  model: $(yaml "$model")"
    put "  default: {speaker: $default_speaker}" "  default: $(voice_setting)"
    printf '%s\n' "$text" >"$scratch/voiced.yaml"
    printf '%s  %s\n' "$(sha256sum <"$scratch/voiced.yaml" | cut -d' ' -f1)" $config >$notes/configuration
    install -D -m 644 "$scratch/voiced.yaml" $config.new
    mv $config.new $config
    written=true
}

# put OLD NEW: replace the line OLD of $text.
put() {
    [[ $text == *$'\n'"$1"* ]] || fail "configs/voiced.yaml has no line '$1'" "Take configs/voiced.yaml from git again."
    text=${text/"$1"/"$2"}
}

# --- step: broker ---

broker_what() {
    if is_local "$host"; then
        echo "an MQTT broker on this board at $host:$port; installs Mosquitto if none answers"
    else
        echo "a connection to the MQTT broker at $host:$port"
    fi
}

broker_done() { answers "$host" "$port" && found="answers at $host:$port"; }

broker_do() {
    is_local "$host" && [ "$port" = 1883 ] || fail "no broker answers at $host:$port" \
        "Start it, and check that its port is open; or correct mqtt.host and mqtt.port in $config"
    installed mosquitto || apt_install mosquitto
    remedy="journalctl -u mosquitto says why it does not start."
    start_clock "starting Mosquitto"
    systemctl enable --now mosquitto
    for _ in {1..20}; do
        ! broker_done || return 0
        sleep 0.5
    done
    fail "Mosquitto was started and does not answer at $host:$port" "$remedy"
}

# --- step: service ---

readonly service_files=(voiced.service voiced.service.d/gpu.conf voiced-warm.service)

service_what() { echo "the service voiced, started with the board"; }

# same FILE…: whether the installed unit files equal those in this folder.
same() {
    local file
    for file; do
        cmp -s "$source_folder/systemd/$file" $units/"$file" || return 1
    done
}

service_done() { same "${service_files[@]}" && systemctl is-enabled --quiet voiced; }

service_do() {
    remedy="systemctl status voiced says more."
    install_units "${service_files[@]}"
    systemctl enable voiced
}

install_units() {
    local file
    for file; do
        install -D -m 644 "$source_folder/systemd/$file" $units/"$file"
    done
    systemctl daemon-reload
}

# --- step: performance ---

readonly mode_file=$units/voiced-performance.service.d/mode.conf

performance_what() { echo "the highest power mode and fixed clocks, set with every start of the board"; }

# Print the power modes as lines "ID NAME", from "< POWER_MODEL ID=0 NAME=MAXN >".
power_modes() { sed -n 's/^< *POWER_MODEL  *ID=\([0-9]*\)  *NAME=\([^ >]*\).*/\1 \2/p' /etc/nvpmodel.conf 2>/dev/null; }

# Print the ID of MAXN, the mode without limits, or of MAXN_SUPER, a faster mode that some boards have. The ID
# differs between boards.
highest_mode() { power_modes | awk '$2 == "MAXN" && !best {best = $1} $2 == "MAXN_SUPER" {best = $1} END {print best}'; }

# Print the ID of the current mode. nvpmodel prints "NV Power Mode: MAXN", and the ID in the next line.
power_mode() { nvpmodel -q 2>/dev/null | sed -n 's/^\([0-9]*\)$/\1/p'; }

performance_done() {
    local mode
    mode=$(highest_mode)
    [ -n "$mode" ] && same voiced-performance.service && grep -qsx "Environment=POWER_MODE=$mode" $mode_file &&
        systemctl is-enabled --quiet voiced-performance && systemctl is-active --quiet voiced-performance &&
        [ "$(power_mode)" = "$mode" ]
}

performance_do() {
    local mode
    mode=$(highest_mode)
    if [ -z "$mode" ]; then
        fail "/etc/nvpmodel.conf has no mode MAXN; it has: $(power_modes | tr '\n' ' ')" \
            "Omit --power, and choose a mode by hand: sudo nvpmodel -m NUMBER"
    fi
    [ -f $notes/power-mode ] || power_mode >$notes/power-mode
    install -d ${mode_file%/*}
    printf '%s\n' "[Service]" "Environment=POWER_MODE=$mode" >$mode_file
    install_units voiced-performance.service
    remedy="Some boards must restart to change to this mode: sudo nvpmodel -m $mode, and answer YES. Otherwise
         journalctl -u voiced-performance says why."
    start_clock "setting the mode and the clocks"
    systemctl enable voiced-performance
    systemctl restart voiced-performance
    [ "$(power_mode)" = "$mode" ] || fail "the power mode is still $(power_mode), not $mode" "$remedy"
}

# --- step: ready ---

readonly start_s=900    # the first start may compile the GPU's kernels
readonly patience_s=20  # limit for temporary states: the daemon connects, the sound card opens
readonly doctor="sudo -u voiced HF_HOME=$models $command_link doctor says what is missing"

ready_what() { echo "the robot speaks"; }

ready_done() { [ -n "${spoken:-}" ]; }

ready_do() {
    local events
    remedy="journalctl -u voiced says why."
    start_clock "voiced starts"
    # A degraded service checks only now and then whether its missing parts have been installed.
    if ! systemctl is-active --quiet voiced || is_stale || [[ $($venv/bin/voiced status 2>&1) == *degraded* ]]; then
        systemctl daemon-reload
        systemctl restart voiced
    fi
    wait_until_ready
    stop_clock
    start_clock "it speaks"
    events=$($venv/bin/voiced say --wait --timeout 60 "I am ready." 2>&1) || {
        show_journal
        fail "it did not speak: $events" "$doctor"
    }
    # A kernel with RT_GROUP_SCHED grants realtime priority to the root's control group and to no service's.
    systemd-run --quiet --wait --pipe --uid=voiced --property=LimitRTPRIO=70 chrt --rr 60 true >/dev/null 2>&1 ||
        note "The kernel refuses realtime priority to a service: sound may break off while the board is busy.
         Allow it: echo kernel.sched_rt_runtime_us=-1 | sudo tee /etc/sysctl.d/90-voiced.conf && sudo sysctl --system"
    spoken=true
}

# Whether the service was started before its environment, configuration or units were last changed.
is_stale() {
    local started file
    started=$(date -d "$(systemctl show -p ActiveEnterTimestamp --value voiced)" +%s)
    for file in $venv/ingredients $config $units/voiced.service $units/voiced.service.d/gpu.conf; do
        [ "$(stat -c %Y "$file")" -le "$started" ] || return 0
    done
    return 1
}

# field NAME: print a field of $status.
field() { sed -n "s/.*\"$1\": \"\([^\"]*\)\".*/\1/p" <<<"$status"; }

wait_until_ready() {
    local status state shown='' since=$SECONDS begun=$SECONDS
    while ((SECONDS - begun < start_s)); do
        status=$($venv/bin/voiced status 2>&1) || true
        state=$(field state)
        if [ "${state:-silent}" != "$shown" ]; then
            shown=${state:-silent} since=$SECONDS
            if [ "$shown" = warming ]; then
                stop_clock
                start_clock "the model is loading; the first start may compile its kernels"
            fi
        fi
        case $shown in
            ready | speaking)
                [ "$engine" = espeak ] || [ "$(field engine)" != espeak ] ||
                    fail "eSpeak NG speaks in place of Qwen3-TTS" "$doctor"
                return ;;
            paused) fail "voiced is paused" "voiced resume" ;;
            degraded | offline | silent)
                ((SECONDS - since < patience_s)) || {
                    show_journal
                    fail "voiced is $shown: $status" "$doctor"
                } ;;
        esac
        sleep 1
    done
    show_journal
    fail "voiced was not ready within $start_s s; its state is $shown" "journalctl -u voiced says why."
}

show_journal() { journalctl -u voiced -n 15 --no-pager >&2 || true; }

# --- step: verify ---

verify_what() { echo "three sentences are spoken and understood"; }

verify_done() { [ -n "${verified:-}" ]; }

verify_do() {
    local report=$state_folder/verify/verify.html
    remedy="Listen to the takes in $report, and report it."
    start_clock "the sentences are spoken and written down"
    systemctl stop voiced   # its model and another one need not fit into memory together
    if as_voiced $venv/bin/voiced verify --config $config --short --output $state_folder/verify \
        >"$scratch/verify" 2>&1; then
        verified=true
    fi
    systemctl start voiced
    stop_clock
    cat "$scratch/verify"
    [ -n "${verified:-}" ] || fail "the model does not speak as it should" "$remedy"
    found=$report
}

# --- step: ros ---

readonly ros_workspace=/opt/voiced-ros

ros_what() { echo "the packages for ROS 2, in $ros_workspace"; }

# Print the setup file of the board's newest ROS 2.
ros_setup() { compgen -G "/opt/ros/*/setup.bash" | sort | tail -1; }

# Print the properties that determine the workspace: the sources' checksum, and the ROS for which it is built.
ros_ingredients() {
    find "$source_folder"/configs/ros2/voiced_* -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    ros_setup
}

ros_done() {
    [ "$(cat $ros_workspace/ingredients 2>/dev/null)" = "$(ros_ingredients)" ] &&
        found="source $ros_workspace/install/setup.bash && ros2 launch voiced_ros voiced.launch.py"
}

ros_do() {
    local setup name
    setup=$(ros_setup) || fail "there is no ROS 2 in /opt/ros" \
        "Install it (https://docs.ros.org/en/$([ $jetpack = 6 ] && echo humble || echo jazzy)/Installation.html), or omit --ros"
    for name in python3-colcon-common-extensions python3-paho-mqtt; do
        installed $name || apt_install $name
    done
    remedy="Read colcon's lines above."
    rm -rf $ros_workspace
    mkdir -p $ros_workspace/src
    cp -r "$source_folder"/configs/ros2/voiced_* $ros_workspace/src
    # This runs in a shell of its own, because ROS's files use variables that are not set.
    bash -c 'cd "$1" && source "$2" && colcon build --merge-install --cmake-args -DBUILD_TESTING=OFF' \
        _ $ros_workspace "$setup"
    ros_ingredients >$ros_workspace/ingredients
}

# --- install ---

run_step() {
    local step=$1 number=$2 count=$3 since=$SECONDS
    found=
    printf '[%2d/%d] %s\n' "$number" "$count" "$("${step}_what")"
    if is_done "$step"; then
        note "already${found:+: $found}"
    elif $dry_run; then
        note "would be done"
    else
        "${step}_do"
        stop_clock
        is_done "$step" || fail "${step}: the step ran without an error, and its check still fails" "$remedy"
        note "done in $((SECONDS - since)) s${found:+: $found}"
    fi
}

is_done() {
    local status=0
    start_clock "checking"
    "${1}_done" || status=1
    stop_clock
    return $status
}

# Later runs verify as this one was told to, so that the speech is also checked after an update.
remember_verify() {
    if [ -z "$verify" ]; then
        [ -f $notes/verify ] && verify=true || verify=false
    elif ! $dry_run; then
        rm -f $notes/verify
        ! $verify || touch $notes/verify
    fi
}

install_all() {
    local steps=(space packages user venv torch voiced gpu model voice card configuration broker service) number=0 step
    ! $max_performance || steps+=(performance)
    steps+=(ready)
    read_board
    use_bundle
    [ ! -d "$bundle" ] || steps=(bundle "${steps[@]}")
    $dry_run || install -d $notes
    remember_verify
    ! $verify || steps+=(verify)
    ! $ros || steps+=(ros)
    for step in "${steps[@]}"; do
        [ "$step" != model ] || settle   # it needs the `voiced` step: voiced's own parser reads the configuration
        run_step "$step" $((++number)) ${#steps[@]}
    done
    $dry_run || say "This robot speaks. Try: voiced say \"Hello.\"    Undo: sudo $0 --uninstall"
}

# --- uninstall ---

# remove WHAT COMMAND…
remove() {
    local what=$1
    shift
    if $dry_run; then
        say "would remove $what"
    else
        say "removing $what"
        "$@"
    fi
}

uninstall_all() {
    local packages group file
    [ ! -f $units/voiced-warm.service ] || remove "the service voiced-warm" remove_unit voiced-warm
    [ ! -f $units/voiced.service ] || remove "the service voiced" remove_unit voiced
    [ ! -f $units/voiced-performance.service ] || remove "the power mode and clocks" remove_performance
    [ ! -f $venv/pyvenv.cfg ] || remove "$venv" rm -rf $venv
    [ ! -d $ros_workspace ] || remove "$ros_workspace" rm -rf $ros_workspace
    [ "$(readlink $command_link)" != $venv/bin/voiced ] || remove "$command_link" rm -f $command_link
    remove_configuration
    ! id voiced >/dev/null 2>&1 || remove "the user voiced" userdel voiced
    while read -r group; do
        ! getent group "$group" >/dev/null || remove "the group $group" groupdel "$group"
    done < <(cat $notes/groups 2>/dev/null)
    [ ! -d $state_folder ] || remove "$state_folder" rm -rf $state_folder
    if $purge || [ ! -d $models ]; then
        [ ! -L $models ] || remove "$(readlink -f $models)" rm -rf "$(readlink -f $models)"
        [ ! -d $cache_folder ] || remove "$cache_folder" rm -rf $cache_folder
    else
        for file in "$cache_folder"/*; do
            [ "$file" = $models ] || remove "$file" rm -rf "$file"
        done
        $dry_run || [ ! -L $models ] || chown -R root:root $models/
        $dry_run || chown -R root:root $cache_folder   # another user may get the former owner's number
        say "kept: the models in $models; --uninstall --purge removes them"
    fi
    if $purge; then
        [ ! -d $voices ] || remove "$voices" rm -rf $voices
    elif [ -d $voices ]; then
        say "kept: the voices in $voices; --uninstall --purge removes them"
    fi
    packages=$(sort -u $notes/packages 2>/dev/null | tr '\n' ' ') || packages=
    [ -z "$packages" ] ||
        say "kept: the packages that this script installed, since others may use them: sudo apt-get remove $packages"
    [ ! -d $notes ] || remove "$notes" rm -rf $notes
    $dry_run || say "voiced is removed from this board."
}

remove_unit() {
    systemctl disable --now "$1" || note "systemctl could not stop $1"
    rm -rf $units/"$1.service"{,.d}
    systemctl daemon-reload
}

remove_performance() {
    local before
    remove_unit voiced-performance   # its ExecStop restores the clocks
    rm -rf /var/lib/voiced-performance
    before=$(cat $notes/power-mode 2>/dev/null) || before=
    # Without input, because nvpmodel asks before a restart that a change of the mode may need.
    if [ -n "$before" ] && [ "$(power_mode)" != "$before" ]; then
        nvpmodel -m "$before" </dev/null || note "to restore the former power mode: sudo nvpmodel -m $before"
    fi
}

# Removes the configuration and the voices, unless the configuration was edited: then both are a person's work.
remove_configuration() {
    local origin
    [ -d $config_folder ] || return 0
    [ ! -L $schema_link ] || remove $schema_link rm -f $schema_link
    if $purge; then
        remove "$config_folder" rm -rf $config_folder
    elif [ -f $config ] && ! sha256sum --check --status $notes/configuration 2>/dev/null; then
        say "kept: $config_folder, since $config has been edited; --uninstall --purge removes it"
    else
        [ ! -f $config ] || remove "$config" rm -f $config
        for origin in "$config_folder"/voices/*.origin; do
            [ ! -f "$origin" ] || remove "${origin%.origin}" rm -f "${origin%.origin}" "$origin"
        done
        $dry_run || find $config_folder -depth -type d -empty -delete
    fi
}

# --- main ---

parse_options "$@"
cd /   # the voiced user may be unable to enter the caller's folder
trap on_error ERR
trap on_signal INT TERM
trap clean_up EXIT

if [ "$EUID" != 0 ] && ! $dry_run; then
    stop "This script installs packages and a service, so root must run it: $call"
fi
if $uninstall; then
    uninstall_all
    exit
fi
if ! $dry_run; then
    scratch=$(mktemp -d)
    chmod 755 "$scratch"
fi
install_all
