themeButton();
drawSections();
document.documentElement.dataset.ready = "yes";
