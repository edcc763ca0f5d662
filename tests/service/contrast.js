// Texts whose contrast to what is behind them is below that of WCAG AA, as "ratio text" lines.
() => {
  const channels = (color) => (color.match(/[\d.]+/g) || []).map(Number);
  const over = (front, back) => {
    const alpha = front.length > 3 ? front[3] : 1;
    return [0, 1, 2].map((at) => front[at] * alpha + back[at] * (1 - alpha));
  };
  const behind = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) layers.push(channels(getComputedStyle(each).backgroundColor));
    return layers.reverse().reduce((back, layer) => (layer.length < 3 ? back : over(layer, back)), [255, 255, 255]);
  };
  const luminance = (color) => {
    const linear = color.slice(0, 3).map((value) => value / 255).map((value) =>
      (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const pale = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest("svg")) continue;
    const style = getComputedStyle(element);
    const back = behind(element);
    const [one, other] = [luminance(over(channels(style.color), back)), luminance(back)].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    const large = parseFloat(style.fontSize) >= 24;
    if (ratio < (large ? 3 : 4.5)) pale.push(`${ratio.toFixed(2)} ${element.textContent.trim().slice(0, 40)}`);
  }
  return pale;
}
