"""The tables in Markdown."""

from compare import ORT, OURS, RTEN, TRACT, WHOLE


def show(machine, rows, wholes, failures, rounds):
    print("; ".join(f"{name} {value}" for name, value in machine.items()) + f"; {rounds} rounds.")
    if rows:
        print("\n| what | ours | peer | the peer's | ours ÷ peer |\n|---|--:|---|--:|--:|")
    for row in rows:
        ours, theirs = (cell(row[side], row["unit"]) for side in ("ours", "theirs"))
        print(f"| {row['what']} | {ours} | {row['peer']} | {theirs} | {spread(row['ratio'])} |")
    for cores in dict.fromkeys(whole["cores"] for whole in wholes):
        show_times([whole for whole in wholes if whole["cores"] == cores], cores)
    if wholes:
        show_first(wholes)
    for what, why in failures.items():
        print(f"\nFailed: {what}: {why}")


def show_times(wholes, cores):
    """Further runs: our time, and by each peer's; errors of ours and of the peers'."""
    print(f"\nFurther runs on {cores} {'core' if cores == 1 else 'cores'}: time, and ours ÷ peer (least – greatest of the rounds); "
          "errors in parts of 1e-4 · max + 1e-5.\n")
    print(f"| model | ours | {ORT} | ours ÷ {ORT} | ours ÷ {RTEN} | ours ÷ {TRACT} | our error | {RTEN} | {TRACT} |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for whole in wholes:
        times = [median(whole, program, "further", format_seconds) for program in (OURS, ORT)]
        ratios = [spread(whole["ratios"].get(peer, {}).get("further")) for peer in WHOLE[1:]]
        errors = [whole["programs"].get(program, {}).get("error") for program in (OURS, RTEN, TRACT)]
        errors = ["–" if error is None else f"{error:.2g}" for error in errors]
        print("| " + " | ".join([whole["model"], *times, *ratios, *errors]) + " |")


def show_first(wholes):
    """From opening the file to the first result, and memory: every program's."""
    print("\nOpening the file, opening it to the first result, and the peak of memory until then less the process before, "
          f"each of {', '.join(WHOLE)}.\n")
    print("| model, cores | weights | opening | first result | memory |\n|---|--:|--:|--:|--:|")
    for whole in wholes:
        together = lambda measure, shown: " · ".join(median(whole, program, measure, shown) for program in WHOLE)
        cells = [together("open", format_seconds), together("first", format_seconds), together("growth", format_bytes)]
        print(f"| {whole['model']}, {whole['cores']} | {format_bytes(whole['weights'])} | " + " | ".join(cells) + " |")


def median(whole, program, measure, shown):
    return shown(whole["programs"][program][measure]["median"]) if program in whole["programs"] else "–"


def spread(ratio):
    return "–" if ratio is None else f"**{ratio['median']:.3g}** ({ratio['least']:.3g} – {ratio['greatest']:.3g})"


def cell(statistic, unit):
    if statistic is None:
        return "–"
    shown = {"seconds": format_seconds, "ratio": "{:.3f}".format}[unit]
    median, low, high = (shown(statistic[name]) for name in ("median", "low", "high"))
    return f"**{median}** ({low} – {high}, least {shown(statistic['least'])})"


def format_seconds(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def format_bytes(count):
    return f"{count / 1e6:.3g} MB" if count < 999.5e6 else f"{count / 1e9:.3g} GB"
